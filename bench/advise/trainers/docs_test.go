package trainers

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/tools/golden"
)

// docs/lab/trainer-keys.md ends with the tables: which keys are read, refused, and noted in a warning.
func TestDocumentationHasTheTables(t *testing.T) {
	const path, marker = "../../../docs/lab/trainer-keys.md", "<!-- The tests write what follows. -->\n"
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

// writeTable writes a section: the keys of a table by what they decide.
func writeTable(b *strings.Builder, t *Table) {
	fmt.Fprintf(b, "\n### %s %s\n\n", t.Trainer, t.Version)
	base := &Table{}
	if t.Extends != "" {
		base = TableNamed(t.Extends)
		fmt.Fprintf(b, "Keys of %s that are not listed here have the same meaning.\n\n", t.Extends)
	}
	var read, refused, noted []string
	for _, key := range slices.Sorted(maps.Keys(t.Keys)) {
		row, name := t.Keys[key], "`"+key+"`"
		switch other, ok := base.Keys[key]; {
		case ok && reflect.DeepEqual(other, row):
		case row.Needs != "":
			refused = append(refused, name)
		case row.Bound != "":
			noted = append(noted, name)
		default:
			if values := refusedValues(row); len(values) > 0 {
				name += " (not " + strings.Join(values, ", ") + ")"
			}
			read = append(read, name)
		}
	}
	writeKeys(b, "Read", read)
	writeKeys(b, "Refused where it would matter", refused)
	writeKeys(b, "Planned with a warning", noted)
}

// writeKeys writes paragraphs of keys.
func writeKeys(b *strings.Builder, head string, keys []string) {
	for part := range slices.Chunk(keys, 60) {
		fmt.Fprintf(b, "%s: %s.\n\n", head, strings.Join(part, ", "))
	}
}

// refusedValues returns the values of a key that are refused.
func refusedValues(r Row) (refused []string) {
	for _, word := range slices.Sorted(maps.Keys(r.Words)) {
		if _, no := r.Words[word].Facts["refuse"]; no {
			refused = append(refused, map[bool]string{true: "other values", false: word}[word == "*"])
		}
	}
	return refused
}
