package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Limits of the documents, in words but for rows, which are in characters.
const (
	mostPages          = 12 // for users, without the index
	mostWordsOfPage    = 1500
	mostWords          = 30_000 // of the pages for users and the laboratory's
	mostOfParagraph    = 120
	mostCharactersRow  = 300
	indexOfDocuments   = "../docs/README.md"
	pagesForUsersNamed = "../docs/*.md"
)

// firstLines are the title of a page for users, and its reader.
var firstLines = regexp.MustCompile(`^# .+\n\nFor someone (who|whose) `)

// codeOfPages are the blocks of code of a page, which no limit of paragraphs concerns.
var codeOfPages = regexp.MustCompile("(?ms)^```.*?^```$")

// A page for users names its reader, is short, and ends with what to read next.
func TestPagesForUsersAreShort(t *testing.T) {
	pages, err := filepath.Glob(pagesForUsersNamed)
	require.NoError(t, err)
	require.LessOrEqual(t, len(pages)-1, mostPages, "one page is the index")
	for _, path := range pages {
		text := readPage(t, path)
		require.LessOrEqual(t, len(strings.Fields(text)), mostWordsOfPage, path)
		if path == indexOfDocuments {
			continue
		}
		require.True(t, firstLines.MatchString(text), "%s: the first line names the reader: For someone who ...", path)
		_, next, found := strings.Cut(text, "\n## Next\n")
		require.True(t, found, "%s: the last section is ## Next", path)
		require.NotContains(t, next, "\n#", path)
		require.Regexp(t, link, next, path)
	}
}

// All documents together stay below a number of words, as does each paragraph, list item and row of a table.
func TestDocumentsAreShort(t *testing.T) {
	words := 0
	for _, path := range documents(t) {
		text := readPage(t, path)
		words += len(strings.Fields(text))
		for _, part := range paragraphs(text) {
			require.LessOrEqual(t, len(strings.Fields(part)), mostOfParagraph, "%s: a paragraph\n%s", path, part)
		}
		for line := range strings.Lines(codeOfPages.ReplaceAllString(text, "")) {
			if strings.HasPrefix(line, "|") {
				require.LessOrEqual(t, len(strings.TrimSpace(line)), mostCharactersRow, "%s: a row\n%s", path, line)
			}
		}
	}
	require.LessOrEqual(t, words, mostWords)
}

// Each page is in the index.
func TestTheIndexNamesAllPages(t *testing.T) {
	index := readPage(t, indexOfDocuments)
	for _, path := range documents(t) {
		name, err := filepath.Rel(filepath.Dir(indexOfDocuments), path)
		require.NoError(t, err)
		if path != indexOfDocuments {
			require.Contains(t, index, "]("+name, path)
		}
	}
}

func TestLimitsSeeParagraphs(t *testing.T) {
	require.Equal(t, []string{"one\ntwo", "- a\n  b", "- c"},
		paragraphs("one\ntwo\n\n```\ncode\n\ncode\n```\n\n- a\n  b\n- c\n| row |\n"))
}

// paragraphs returns the paragraphs and list items of a page, without code and tables.
func paragraphs(text string) (parts []string) {
	var part []string
	end := func() {
		if len(part) > 0 {
			parts = append(parts, strings.Join(part, "\n"))
		}
		part = nil
	}
	item := regexp.MustCompile(`^\s*(-|\d+\.) `)
	for line := range strings.SplitSeq(codeOfPages.ReplaceAllString(text, ""), "\n") {
		if line == "" || strings.HasPrefix(line, "|") || item.MatchString(line) {
			end()
		}
		if line != "" && !strings.HasPrefix(line, "|") {
			part = append(part, line)
		}
	}
	end()
	return parts
}

// readPage returns the text of a page.
func readPage(t *testing.T, path string) string {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
