package reference

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/input"
)

// Published is a figure that others measured on a real GPU and published, and the plan that it is held
// against. Without one, Missing says what vprof cannot say.
type Published struct {
	report.PublishedRow
	Missing string `json:"missing"`
}

// Kinds returns what figures are of.
func Kinds() []string { return []string{"allocated", "reserved", "device"} }

// OpenPublished reads published figures, JSON Lines, gzipped if the name ends in .gz. ok is false if the file
// cannot be read or holds something else. The error is an [*input.FormatError] if a row is damaged.
func OpenPublished(path string) (rows []Published, ok bool, err error) {
	r, err := openText(path)
	if err != nil {
		return nil, false, err
	}
	defer r.Close()
	return ReadPublished(r, path)
}

// ReadPublished reads published figures from r; name is used in messages.
func ReadPublished(r io.Reader, name string) (rows []Published, ok bool, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	for n := 1; lines.Scan(); n++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var p Published
		err := json.Unmarshal(line, &p)
		if len(rows) == 0 && (err != nil || p.Bytes == 0) {
			return nil, false, nil
		}
		if err == nil {
			err = p.check()
		}
		if err != nil {
			return nil, true, &input.FormatError{File: name, Line: n, Reason: err.Error()}
		}
		rows = append(rows, p)
	}
	return rows, len(rows) > 0, lines.Err()
}

func (p *Published) check() error {
	switch {
	case p.Bytes < 0 || p.Rounding < 0 || p.Bytes == 0 && p.Missing == "":
		return fmt.Errorf("published_bytes: %d with a rounding of %d is no amount", p.Bytes, p.Rounding)
	case !slices.Contains(Kinds(), p.Kind):
		return fmt.Errorf("kind: %q is none of %s", p.Kind, strings.Join(Kinds(), ", "))
	case p.Source == "":
		return errors.New("source: missing; say where the figure stands")
	case cmp.Or(p.Command, p.Missing) == "":
		return errors.New("command: missing; give the plan that says the same, or say in \"missing\" what vprof cannot")
	case p.Command != "" && !strings.HasPrefix(p.Command, "plan "):
		return fmt.Errorf("command: %q is no plan", p.Command)
	}
	return nil
}
