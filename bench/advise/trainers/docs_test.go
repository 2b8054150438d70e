package trainers

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/golden"
)

// The end of docs/trainers.md is made of the tables.
func TestDocumentationHasTheTables(t *testing.T) {
	const path, marker = "../../../docs/trainers.md", "<!-- What follows is made of the tables by the tests. -->\n"
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	head, _, found := strings.Cut(string(page), marker)
	require.True(t, found)
	var b strings.Builder
	b.WriteString(head + marker)
	for _, table := range Tables() {
		writeTable(&b, table)
	}
	golden.Equal(t, path, []byte(b.String()))
}

func writeTable(b *strings.Builder, t *Table) {
	fmt.Fprintf(b, "\n### %s %s\n\n", t.Trainer, t.Version)
	base := &Table{}
	if t.Extends != "" {
		base = Named(t.Extends)
		fmt.Fprintf(b, "Keys of %s that are not here mean what they mean there.\n\n", t.Extends)
	}
	b.WriteString("| key | means |\n|---|---|\n")
	for _, key := range slices.Sorted(maps.Keys(t.Keys)) {
		says := meaning(t.Keys[key])
		if other, ok := base.Keys[key]; ok && meaning(other) == says {
			continue
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", key, says)
	}
	var harmless []string
	for _, key := range t.Harmless {
		if !slices.Contains(base.Harmless, key) {
			harmless = append(harmless, "`"+key+"`")
		}
	}
	slices.Sort(harmless)
	fmt.Fprintf(b, "\nHarmless: %s.\n", strings.Join(slices.Compact(harmless), ", "))
}

// meaning returns a row in a line.
func meaning(r Row) string {
	unless := strings.Join(append([]string{"absent"}, r.Unless...), " or ")
	switch {
	case r.File:
		return "a file with the keys of this group"
	case r.Needs != "":
		return "refused unless " + unless + ": " + r.Needs
	case r.Bound != "":
		return "noted unless " + unless + ": " + r.Bound
	case len(r.Words) == 0:
		return r.Is
	}
	var parts, refused []string
	for _, word := range slices.Sorted(maps.Keys(r.Words)) {
		w := r.Words[word]
		if _, no := w.Facts["refuse"]; no {
			refused = append(refused, word)
			continue
		}
		var facts []string
		if w.Own != "" {
			facts = append(facts, r.Is+" "+w.Own)
		}
		for _, name := range slices.Sorted(maps.Keys(w.Facts)) {
			if name != "note" {
				facts = append(facts, name+" "+strings.TrimPrefix(w.Facts[name], "+"))
			}
		}
		parts = append(parts, cmp.Or(word, "null")+": "+cmp.Or(strings.Join(facts, " + "), "nothing"))
	}
	if slices.Contains(counts, r.Is) {
		parts = append(parts, "N: "+r.Is+" N")
	}
	const most = 20
	if len(parts) > most {
		parts = append(parts[:3], fmt.Sprintf("and %d more", len(parts)-3))
	}
	if len(refused) > 0 {
		parts = append(parts, "refused: "+strings.Join(refused, ", "))
	}
	return strings.Join(parts, "; ")
}
