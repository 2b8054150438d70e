package coefficients

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/vprof/vprof/internal/rewrite"
)

// fileHeader is the comment at the top of every coefficients file.
const fileHeader = `Coefficients of vprof, written by "vprof calibrate". Read by plan, sweep, fit,
smoke and time with --coefficients FILE, or by naming the file in vprof.yaml.
1.96 standard errors (stderr) to either side are the 95 % interval.`

// keyComments are comments above the keys of an entry.
var keyComments = map[string]string{
	"stack":             "what ran; coefficients do not carry over to another",
	"simulated":         "true: no GPU of this kind was touched",
	"bare":              "true: vprof's kernels ran; the context is without what PyTorch's libraries load",
	"models":            "the slacks and the library workspace hold for these only",
	"library_workspace": "bytes that libraries take through PyTorch's allocator, whatever the batch",
	"context":           "bytes outside PyTorch's allocator, whatever the batch: the CUDA context, loaded kernels",
	"granularity":       "bytes that the driver adds to each segment",
	"allocated_slack":   "share by which tensors outgrow the recording",
	"reserved_slack":    "share of the reserved bytes that the allocator caches beyond the replay",
	"device_slack":      "share of the reserved bytes that is taken outside the allocator besides",
	"correlations":      "how errors go together, from -1 to 1",
	"speed":             "speed of kernels relative to the table of kernel parameters, by class of work",
	"efficiency":        "share of the GPU's peak speed that kernels reach, by class of work",
	"synthetic_efficiency": "the same of kernels that stand for PyTorch's on a GPU; no time of PyTorch is " +
		"estimated by it",
	"host":         "time that this machine's host takes to launch a kernel, relative to the table's host",
	"launch":       "seconds of every kernel besides",
	"dispatch":     "seconds that the host takes to launch a kernel",
	"module":       "the same of products, convolutions, attention and norms",
	"errors":       "relative errors of device bytes (of reserved ones where nobody measured the device)",
	"held_out":     "each run estimated by coefficients fitted to the others",
	"undetermined": "what the runs could not tell; the defaults stand",
	"inputs":       "what was learned from",
}

// Encode writes the file as YAML with comments.
func (f *File) Encode(w io.Writer) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("coefficients: %w", err)
	}
	// In flow style every string that needs quotes is quoted. In block style a string with line breaks becomes a
	// literal, which does not survive a leading tab.
	flow := struct {
		File *File `yaml:"file,flow"`
	}{f}
	var whole yaml.Node
	if err := whole.Encode(flow); err != nil {
		return fmt.Errorf("coefficients: %w", err)
	}
	doc := whole.Content[1]
	setStyles(doc, 0)
	doc.HeadComment = fileHeader
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(doc); err != nil {
		return fmt.Errorf("coefficients: %w", err)
	}
	return e.Close()
}

// inlineKeys are the keys whose lists and mappings are written in flow style.
var inlineKeys = map[string]bool{
	"models": true, "batches": true, "between": true, "before": true, "after": true,
	"held_out": true,
}

// setStyles sets the style of nodes so that each key has a line, with its comment above.
func setStyles(n *yaml.Node, depth int) {
	n.Style &^= yaml.FlowStyle
	if n.Style == yaml.SingleQuotedStyle { // plain, but for what flow style forbids
		n.Style, n.Tag = 0, ""
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 {
			key := n.Content[i-1]
			if depth < 4 {
				key.HeadComment = keyComments[key.Value]
			}
			if inlineKeys[key.Value] {
				continue
			}
		}
		setStyles(child, depth+1)
	}
}

// Add puts an entry into the file at path, or into a new file. It replaces an entry of the same name. The file is
// replaced atomically, and its old content is saved in the first free name of PATH.backup, PATH.backup.1, and so on.
// Several processes can add at the same time. Add returns the backup's name; empty if there was no file. A file that
// cannot be read is a [*input.FormatError] and is not changed.
func Add(ctx context.Context, path, tool string, e Entry) (backup string, err error) {
	return updateFile(ctx, path, tool, func(f *File) { f.PutEntry(e) })
}

// SetHost stores the host's coefficient in the file at path, in the way of [Add].
func SetHost(ctx context.Context, path, tool string, host Number) (backup string, err error) {
	return updateFile(ctx, path, tool, func(f *File) { f.Host = &host })
}

func updateFile(ctx context.Context, path, tool string, change func(*File)) (backup string, err error) {
	return rewrite.Update(ctx, path, func(before []byte) ([]byte, error) {
		f := &File{Schema: Schema, Entries: []Entry{}}
		if before != nil {
			if f, err = Read(bytes.NewReader(before), path); err != nil {
				return nil, err
			}
		}
		f.Tool = tool
		change(f)
		var after bytes.Buffer
		err = f.Encode(&after)
		return after.Bytes(), err
	})
}
