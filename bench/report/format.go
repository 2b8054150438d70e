package report

import (
	"embed"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/printable"
)

// Format is an output format of a result.
type Format string

// The formats.
const (
	Table    Format = "table"
	JSON     Format = "json"
	JSONL    Format = "jsonl"
	CSV      Format = "csv"
	Markdown Format = "markdown"
)

// formats are in the order of help and messages, with the file suffixes that select each.
var formats = []struct {
	format   Format
	suffixes []string
}{
	{Table, []string{".txt"}},
	{JSON, []string{".json"}},
	{JSONL, []string{".jsonl", ".ndjson"}},
	{CSV, []string{".csv"}},
	{Markdown, []string{".md", ".markdown"}},
}

// Formats returns the names of all formats.
func Formats() []string {
	var names []string
	for _, f := range formats {
		names = append(names, string(f.format))
	}
	return names
}

// ParseFormat returns the format with a name, or with a suffix without its dot.
func ParseFormat(name string) (Format, error) {
	lower := strings.ToLower(name)
	for _, f := range formats {
		if lower == string(f.format) || slices.Contains(f.suffixes, "."+lower) {
			return f.format, nil
		}
	}
	return "", fmt.Errorf("unknown output format %q; use one of %s", name, strings.Join(Formats(), ", "))
}

// FormatOf returns the format for a file's suffix.
func FormatOf(path string) (Format, error) {
	var all []string
	for _, f := range formats {
		for _, suffix := range f.suffixes {
			if strings.EqualFold(filepath.Ext(path), suffix) {
				return f.format, nil
			}
			all = append(all, suffix)
		}
	}
	return "", fmt.Errorf("%s: the suffix is no known format; use one of %s", path, strings.Join(all, " "))
}

// Document is a result that can be written in every format. encoding/json writes its JSON.
type Document interface {
	// Sheets are its tables for people.
	Sheets() []Sheet
	// Data are its rows for programs.
	Data() Data
}

// Data has the rows of a document for the formats that programs read.
type Data struct {
	// Lines are the values of its JSON Lines.
	Lines []any
	// CSV has a header first. Bytes are exact integers.
	CSV [][]string
}

// Write writes d to w.
func Write(w io.Writer, f Format, d Document) error {
	switch f {
	case JSON:
		if several, ok := d.(Sweeps); ok { // one after the other, as Read takes them
			for _, r := range several {
				if err := Write(w, f, r); err != nil {
					return err
				}
			}
			return nil
		}
		return encoder(w, true).Encode(d)
	case JSONL:
		e := encoder(w, false)
		for _, line := range d.Data().Lines {
			if err := e.Encode(line); err != nil {
				return err
			}
		}
		return nil
	case CSV:
		return writeCSV(w, d.Data().CSV)
	case Table, Markdown:
		return writeSheets(w, f, d, Layout{})
	}
	panic("report: no such format: " + string(f)) // ParseFormat and FormatOf make no other
}

// encoder returns a JSON encoder that leaves < and & unescaped: indented for people, or one value a line.
func encoder(w io.Writer, indented bool) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if indented {
		e.SetIndent("", "  ")
	}
	return e
}

// writeCSV writes rows, with texts escaped that a spreadsheet would run as formulas.
func writeCSV(w io.Writer, rows [][]string) error {
	for _, row := range rows {
		for i := range row {
			row[i] = printable.Cell(row[i])
		}
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// WriteTable writes d as tables in a layout.
func WriteTable(w io.Writer, d Document, l Layout) error { return writeSheets(w, Table, d, l) }

func writeSheets(w io.Writer, f Format, d Document, l Layout) error {
	var b strings.Builder
	for i, s := range d.Sheets() {
		if i > 0 {
			b.WriteByte('\n')
		} else if l.Defaults != "" {
			s.Title += "; " + l.Defaults
		}
		s.render(&b, f, l)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

//go:embed schema
var schemas embed.FS

// Schemas returns the names of the documents that have a JSON Schema, sorted.
func Schemas() []string {
	files, err := schemas.ReadDir("schema")
	if err != nil {
		panic(err) // embedded
	}
	return lists.Map(files, func(f fs.DirEntry) string { return strings.TrimSuffix(f.Name(), ".json") })
}

// JSONSchema returns the JSON Schema of one of [Schemas].
func JSONSchema(name string) (text []byte, ok bool) {
	text, err := schemas.ReadFile("schema/" + name + ".json")
	return text, err == nil
}
