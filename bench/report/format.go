package report

import (
	"embed"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/printable"
)

// Format is a way to write a result.
type Format string

// The formats.
const (
	Table    Format = "table"
	JSON     Format = "json"
	JSONL    Format = "jsonl"
	CSV      Format = "csv"
	Markdown Format = "markdown"
)

// formats in the order that help and messages show, with the file suffixes
// that stand for each.
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

// ParseFormat finds the format of a name, or of a suffix without its dot.
func ParseFormat(name string) (Format, error) {
	lower := strings.ToLower(name)
	for _, f := range formats {
		if lower == string(f.format) || slices.Contains(f.suffixes, "."+lower) {
			return f.format, nil
		}
	}
	return "", fmt.Errorf("there is no format %q; use %s", name, strings.Join(Formats(), ", "))
}

// FormatOf finds the format that a file's suffix stands for.
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
	return "", fmt.Errorf("%s: the suffix names no format; use one of %s", path, strings.Join(all, " "))
}

// Document is a result that can be written in every format. Its JSON is what
// encoding/json makes of it.
type Document interface {
	// Sheets are its tables for people.
	Sheets() []Sheet
	// Data are its rows for programs.
	Data() Data
}

// Data are the rows of a document in the formats for programs.
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
		if several, ok := d.(Several); ok { // one after the other, as Read takes them
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

// encoder writes JSON with < and & as they are: for people to read, or a value a line.
func encoder(w io.Writer, indented bool) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if indented {
		e.SetIndent("", "  ")
	}
	return e
}

// writeCSV writes rows whose texts no spreadsheet takes for formulas.
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

// Schemas are the names of the documents that have a JSON Schema, sorted.
func Schemas() []string {
	files, err := schemas.ReadDir("schema")
	if err != nil {
		panic(err) // embedded
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".json"))
	}
	return names
}

// JSONSchema returns the JSON Schema of one of [Schemas].
func JSONSchema(name string) (text []byte, ok bool) {
	text, err := schemas.ReadFile("schema/" + name + ".json")
	return text, err == nil
}

// Export is an output file of a result.
type Export struct {
	path   string // with symbolic links followed
	format Format
	mode   os.FileMode
	// direct is set for what cannot be replaced by a rename: a device, a pipe.
	direct bool
}

// Exports makes sure, before the work begins, that every file can be written.
// A file that exists keeps its content until the first result, one that does not is
// not there until then. The format of a file is the one of its suffix.
func Exports(paths []string) ([]Export, error) {
	exports := make([]Export, len(paths))
	for i, path := range paths {
		format, err := FormatOf(path)
		if err != nil {
			return nil, err
		}
		if exports[i], err = writable(path); err != nil {
			return nil, err
		}
		exports[i].format = format
	}
	return exports, nil
}

// writable makes sure that a file can be written. Of one that is not there yet,
// nothing is left.
func writable(path string) (Export, error) {
	_, missing := os.Stat(path)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return Export{}, err
	}
	info, err := f.Stat()
	f.Close()
	if err != nil {
		return Export{}, err
	}
	// A rename must not take the place of a link.
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return Export{}, err
	}
	if errors.Is(missing, fs.ErrNotExist) {
		if err := os.Remove(path); err != nil {
			return Export{}, err
		}
	}
	return Export{path: path, mode: info.Mode().Perm(), direct: !info.Mode().IsRegular()}, nil
}

// WriteFile writes what a function makes to a file as it comes, which may be more than fits
// into memory: a reader sees either all of the old or all of the new. The file may have any suffix.
func WriteFile(path string, write func(io.Writer) error) error {
	e, err := writable(path)
	if err != nil {
		return err
	}
	return e.write(write)
}

// Write replaces the file's content with d, at once where the system can: a
// reader sees either all of the old or all of the new.
func (e Export) Write(d Document) error {
	return e.write(func(w io.Writer) error { return Write(w, e.format, d) })
}

func (e Export) write(write func(io.Writer) error) error {
	if !e.direct {
		return named(e.path, replaced(e.path, e.mode, write))
	}
	f, err := os.OpenFile(e.path, os.O_WRONLY|os.O_TRUNC, e.mode)
	if err != nil {
		return err
	}
	return named(e.path, errors.Join(buffered(f, write), f.Close()))
}

// named is an error about the file that was to be written, and not about the hidden one
// beside it that is renamed at the end.
func named(path string, err error) error {
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		return fmt.Errorf("%s: %w", path, at.Err)
	}
	return err
}
