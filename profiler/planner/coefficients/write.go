package coefficients

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2/maybe"
	"go.yaml.in/yaml/v3"
)

// head stands above every file.
const head = `Coefficients of vprof, written by "vprof calibrate". Read by plan, sweep, fit,
smoke and time with --coefficients FILE, or by naming the file in vprof.yaml.
1.96 standard errors (stderr) to either side are the 95 % interval.`

// comments stand beside the keys of an entry.
var comments = map[string]string{
	"stack":             "what ran; coefficients do not carry over to another",
	"simulated":         "true: no GPU of this kind was touched",
	"models":            "the slacks and the library workspace hold for these only",
	"library_workspace": "bytes that libraries take through PyTorch's allocator, whatever the batch",
	"context":           "bytes outside PyTorch's allocator, whatever the batch: the CUDA context, loaded kernels",
	"granularity":       "bytes that the driver adds to each segment",
	"allocated_slack":   "share by which tensors outgrow the recording",
	"reserved_slack":    "share of the reserved bytes that the allocator caches beyond the replay",
	"device_slack":      "share of the reserved bytes that is taken outside the allocator besides",
	"correlations":      "how errors go together, from -1 to 1",
	"efficiency":        "share of the board's peak speed that kernels reach, by class of work",
	"launch":            "seconds of every kernel besides",
	"errors":            "relative errors of device bytes (of reserved ones where nobody measured the device)",
	"held_out":          "each run estimated by coefficients fitted to the others",
	"undetermined":      "what the runs could not tell; the defaults stand",
	"inputs":            "what was learned from",
}

// Encode writes the file with comments.
func (f *File) Encode(w io.Writer) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("coefficients: %w", err)
	}
	// In flow style every string that needs it is quoted; in block style one that
	// has line breaks becomes a literal, which does not survive a leading tab.
	flow := struct {
		File *File `yaml:"file,flow"`
	}{f}
	var whole yaml.Node
	if err := whole.Encode(flow); err != nil {
		return fmt.Errorf("coefficients: %w", err)
	}
	doc := whole.Content[1]
	layOut(doc, 0)
	doc.HeadComment = head
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(doc); err != nil {
		return fmt.Errorf("coefficients: %w", err)
	}
	return e.Close()
}

// onOneLine are the keys whose lists and mappings stay in flow style.
var onOneLine = map[string]bool{"models": true, "batches": true, "between": true, "before": true, "after": true, "held_out": true}

// layOut gives each key a line, and a comment above where there is one.
func layOut(n *yaml.Node, depth int) {
	n.Style &^= yaml.FlowStyle
	if n.Style == yaml.SingleQuotedStyle { // plain, but for what flow style forbids
		n.Style, n.Tag = 0, ""
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 {
			key := n.Content[i-1]
			if depth < 4 {
				key.HeadComment = comments[key.Value]
			}
			if onOneLine[key.Value] {
				continue
			}
		}
		layOut(child, depth+1)
	}
}

// Save replaces the file at path by f, whole or not at all, and keeps what
// stood there beside it, in the first of PATH.backup, PATH.backup.1, ... that
// is free. It returns the name of the backup; empty if there was no file.
func (f *File) Save(path string) (backup string, err error) {
	var b bytes.Buffer
	if err := f.Encode(&b); err != nil {
		return "", err
	}
	// A rename must not take the place of a link.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	old, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", err
	default:
		if backup, err = keep(path, old); err != nil {
			return "", err
		}
	}
	return backup, maybe.WriteFile(path, b.Bytes(), 0o644)
}

// keep writes a backup without taking the place of an older one.
func keep(path string, content []byte) (string, error) {
	for i := 0; ; i++ {
		name := path + ".backup"
		if i > 0 {
			name = fmt.Sprintf("%s.%d", name, i)
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_, err = f.Write(content)
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return "", errors.Join(err, os.Remove(name))
		}
		return name, nil
	}
}
