package reference

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
)

// File is a whole reference file.
type File struct {
	Name    string
	Header  Header
	Records []Record
}

// maxLineBytes is the longest line accepted. Real records have some thousand bytes.
const maxLineBytes = 4 << 20

// maxErrors is the number of damaged lines after which reading stops.
const maxErrors = 20

// Open reads the file at path, gzipped if the name ends in .gz.
func Open(path string) (*File, error) {
	r, err := openText(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return Read(r, path)
}

// openText opens a file, and decompresses it if its name ends in .gz.
func openText(path string) (io.ReadCloser, error) {
	f, err := input.OpenFile(path)
	if err != nil {
		return nil, err
	}
	if !strings.HasSuffix(path, ".gz") {
		return f, nil
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: the file is not gzip data: %w", path, err), f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{z, f}, nil
}

// Read reads a file from r; name is used in messages. All damaged lines (at
// most twenty) are reported together, each as a [*input.FormatError].
func Read(r io.Reader, name string) (*File, error) {
	file := &File{Name: name}
	var errs []error
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
	n, torch := 0, ""
	var decode func([]byte) (Record, error)
	for lines.Scan() && len(errs) < maxErrors {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		header := false
		if n == 1 {
			decode, header = decoderOf(line)
			file.Header = Header{Schema: Schema}
		}
		switch {
		case !header && len(line) > 0:
			rec, err := decode(line)
			if err != nil {
				errs = append(errs, withLocation(err, name, n))
				continue
			}
			rec.File, rec.Line, rec.Torch = name, n, cmp.Or(rec.Torch, torch)
			rec.Rising = rec.Rising || strings.Contains(file.Header.Source, SimulatedDriver)
			file.Records = append(file.Records, rec)
		case header:
			h, err := decodeHeader(line)
			if err != nil {
				// The rest of the file is probably of another format, too.
				return nil, withLocation(err, name, n)
			}
			if h.Torch != "" {
				if torch, err = models.ParseRelease(h.Torch); err != nil {
					return nil, withLocation(fieldError("torch", "%v", err), name, n)
				}
			}
			file.Header = h
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		errs = append(errs, withLocation(fieldError("", "longer than %d bytes", maxLineBytes), name, n+1))
	case err != nil:
		errs = append(errs, fmt.Errorf("%s: cannot be read after line %d: %w", name, n, err))
	case n == 0:
		errs = append(errs, withLocation(fieldError("", "empty: expected a header with schema %s", Schema), name, 1))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return file, nil
}

func withLocation(err error, name string, line int) error {
	if f, ok := errors.AsType[*input.FormatError](err); ok {
		f.File, f.Line = name, line
	}
	return err
}

func decodeHeader(line []byte) (Header, error) {
	var h Header
	if err := unmarshal(line, &h); err != nil {
		return h, err
	}
	switch h.Schema {
	case Schema:
		return h, nil
	case "":
		return h, fieldError("schema", "missing: the first line must be a header with schema %s", Schema)
	}
	return h, fieldError("schema", "%q is not %s", h.Schema, Schema)
}

// unmarshal decodes a line; errors are a FormatError.
func unmarshal(line []byte, v any) error {
	err := json.Unmarshal(line, v)
	var kind *json.UnmarshalTypeError
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &kind):
		if kind.Field == "" {
			return fieldError("", "want an object, found a JSON %s", kind.Value)
		}
		return fieldError(kind.Field, "want %s, found a JSON %s", typeName(kind.Type.Kind().String()), kind.Value)
	case errors.As(err, &syntax):
		return fieldError("", "not JSON at byte %d: %v", syntax.Offset, err)
	}
	return fieldError("", "%v", err)
}

func typeName(kind string) string {
	switch {
	case strings.HasPrefix(kind, "int"):
		return "an integer"
	case strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "bool":
		return "true or false"
	case kind == "slice":
		return "an array"
	case kind == "struct":
		return "an object"
	default:
		return "a " + kind
	}
}
