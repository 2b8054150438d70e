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

// Published is a published measurement on a real GPU, and the plan to compare it with. If there is no plan, Missing
// names what vprof cannot plan.
type Published struct {
	report.PublishedRow
	Missing string `json:"missing"`
}

// Kinds returns the kinds of measurements.
func Kinds() []string { return []string{"allocated", "active", "reserved", "device"} }

// OpenPublished reads published measurements, JSON Lines, gzipped if the name ends in .gz. ok is false if the file
// cannot be read or has another format. The error is an [*input.FormatError] if a row is damaged.
func OpenPublished(path string) (rows []Published, ok bool, err error) {
	r, err := openText(path)
	if err != nil {
		return nil, false, err
	}
	defer r.Close()
	return ReadPublished(r, path)
}

// ReadPublished reads published measurements from r; name is used in messages.
func ReadPublished(r io.Reader, name string) (rows []Published, ok bool, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLineBytes)
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
		return fmt.Errorf("published_bytes: invalid %d with a rounding of %d", p.Bytes, p.Rounding)
	case !slices.Contains(Kinds(), p.Kind):
		return fmt.Errorf("kind: %q: need one of %s", p.Kind, strings.Join(Kinds(), ", "))
	case p.Source == "":
		return errors.New("source: missing; give the place of the measurement")
	case cmp.Or(p.Command, p.Missing) == "":
		return errors.New("command: missing; give the plan of the same step, or name in \"missing\" what vprof " +
			"cannot plan")
	case p.Command != "" && !strings.HasPrefix(p.Command, "plan "):
		return fmt.Errorf("command: %q: need a command that begins with plan", p.Command)
	}
	return nil
}
