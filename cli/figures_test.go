package cli

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/bench/reference"
)

// pageWords returns a page with one space between words.
func pageWords(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return strings.Join(strings.Fields(string(text)), " ")
}

// submatches returns what a pattern finds first in a text.
func submatches(t *testing.T, text, pattern string) []string {
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	require.NotNil(t, found, pattern)
	return found[1:]
}

// The README's numbers of records and of models equal those in the laboratory's pages, whose tests hold them to
// the records.
func TestCountsOfTheREADMEAreOfThePages(t *testing.T) {
	readme, page := pageWords(t, "../README.md"), pageWords(t, "../docs/lab/accuracy.md")
	table := submatches(t, page, `<!-- accuracy -->(.*)<!-- /accuracy -->`)[0]
	records, models := 0, map[string]bool{}
	for _, found := range regexp.MustCompile(`\| all \| (\d+) \|`).FindAllStringSubmatch(table, -1) {
		n, err := strconv.Atoi(found[1])
		require.NoError(t, err)
		records += n
	}
	of := regexp.MustCompile(`(?:\| |runs: |, )([a-z][\w-]+) (?:\| )?\d+\b`)
	for _, found := range of.FindAllStringSubmatch(table, -1) {
		models[found[1]] = true
	}
	delete(models, "all")
	all := fmt.Sprintf("%d,%03d records of %d models", records/1000, records%1000, len(models))
	require.Contains(t, readme, all)
	require.Contains(t, pageWords(t, "../docs/guide.md"), all)

	page = pageWords(t, "../docs/lab/models.md")
	counts := submatches(t, page, `For maintainers. (\d+) recorded steps of (\d+) models`)
	require.Contains(t, readme, fmt.Sprintf("%s records of %s models of other libraries", counts[0], counts[1]))
	users := submatches(t, pageWords(t, "../docs/mymodel.md"),
		fmt.Sprintf(`Of %s recorded steps of %s models of six libraries, the error of allocated memory is (\S+ %%) in the `+
			`median, (\S+ %%) at p95`, counts[0], counts[1]))
	require.Contains(t, readme, fmt.Sprintf("other libraries: allocated %s, p95 %s.", users[0], users[1]))
	records = 0
	_, rows, found := strings.Cut(page, "| model |")
	require.True(t, found)
	for _, found := range regexp.MustCompile(`\| (\d+) \| [\d.]+% \||[\w.]+-[\w.@-]+ (\d+)[,.] `).
		FindAllStringSubmatch(rows+" ", -1) {
		n, err := strconv.Atoi(found[1] + found[2])
		require.NoError(t, err)
		records += n
	}
	require.Equal(t, counts[0], strconv.Itoa(records))
}

// The peaks of an A100 are off by what tools/evidence/rows.csv has, in the page and in the README.
func TestPeaksOfAnA100AreAsDocumented(t *testing.T) {
	f, err := os.Open("../tools/evidence/rows.csv")
	require.NoError(t, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	var off []float64
	for _, row := range rows[1:] {
		if row[0] != "itu-rad/GPUMemNet" {
			continue
		}
		measured, err := strconv.ParseFloat(row[3], 64)
		require.NoError(t, err)
		estimated, err := strconv.ParseFloat(row[4], 64)
		require.NoError(t, err)
		off = append(off, 100*math.Abs(estimated/measured-1))
	}
	slices.Sort(off)
	n, page := len(off), pageWords(t, "../docs/lab/evidence.md")
	require.Contains(t, page, fmt.Sprintf("| reserved bytes and one context for all | %d | %.1f%% | %.1f%% | %.1f%% |",
		n, off[n/2], off[n*95/100], off[n-1]))
	bare := submatches(t, page, fmt.Sprintf(`\| device bytes, estimated \| %d \| (\d+)\.\d%%`, n))[0]
	require.Contains(t, pageWords(t, "../README.md"), fmt.Sprintf("%d published nvidia-smi peaks of timm models on "+
		"an A100: %.1f %% with a constant for the older CUDA context, %s %% without", n, off[n/2], bare))
}

// The README's errors of published loops stand in the page's table, and both name the number of records.
func TestErrorsOfPublishedLoopsInTheREADME(t *testing.T) {
	readme, page := pageWords(t, "../README.md"), pageWords(t, "../docs/lab/evidence.md")
	row := regexp.MustCompile(`\| (?:allocated|reserved|device) \| (\d+) \| (\S+) % \|`) // number, median
	cells := func(source string) [][]string {
		_, after, found := strings.Cut(page, source)
		require.True(t, found, source)
		return row.FindAllStringSubmatch(after, 2)
	}
	t4, rtx, l40s := cells("| Anassbzdd/fitcheck"), cells("| DaoyuanLi2816/"), cells("| huggingface/peft")
	share, err := strconv.ParseFloat(l40s[0][2], 64)
	require.NoError(t, err)
	require.Contains(t, readme, fmt.Sprintf("allocated %s %% on a T4 (%s rows) and %s %% on an RTX 4080 (%s), reserved "+
		"%s %% and %s %%, and %.1f %% on an L40S (%s rows",
		t4[0][2], t4[0][1], rtx[0][2], rtx[0][1], t4[1][2], rtx[1][2], share, l40s[0][1]))
	rows, _, err := reference.OpenPublished("../bench/reference/data/published/loops.jsonl.gz")
	require.NoError(t, err)
	for _, text := range []string{readme, page} {
		require.Contains(t, text, fmt.Sprintf("%d published", len(rows)))
	}
}
