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

	"github.com/vprof/vprof/internal/golden"
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
		base = Named(t.Extends)
		fmt.Fprintf(b, "Keys of %s that are not listed here have the same meaning.\n\n", t.Extends)
	}
	var read []string
	refused, noted := map[string][]string{}, map[string][]string{}
	for _, key := range slices.Sorted(maps.Keys(t.Keys)) {
		row, name := t.Keys[key], "`"+key+"`"
		switch other, ok := base.Keys[key]; {
		case ok && reflect.DeepEqual(other, row):
		case row.Needs != "":
			refused[row.Needs] = append(refused[row.Needs], name)
		case row.Bound != "":
			noted[row.Bound] = append(noted[row.Bound], name)
		default:
			if values := refusedValues(row); len(values) > 0 {
				name += " (not " + strings.Join(values, ", ") + ")"
			}
			read = append(read, name)
		}
	}
	for part := range slices.Chunk(read, 60) {
		fmt.Fprintf(b, "Read: %s.\n\n", strings.Join(part, ", "))
	}
	writeReasons(b, "Refused where it would matter", refused)
	writeReasons(b, "Planned with a warning", noted)
}

// writeReasons writes a list of keys by the reason why they are refused or noted.
func writeReasons(b *strings.Builder, head string, keys map[string][]string) {
	if len(keys) == 0 {
		return
	}
	fmt.Fprintf(b, "%s:\n\n", head)
	for _, reason := range slices.Sorted(maps.Keys(keys)) {
		fmt.Fprintf(b, "- %s: %s\n", strings.Join(keys[reason], ", "), reason)
	}
	b.WriteByte('\n')
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
