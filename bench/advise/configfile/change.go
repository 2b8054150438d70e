package configfile

import (
	"context"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/rewrite"
)

// Change is a planned edit of a file: its content before and after.
type Change struct {
	// Path is the file, as the user names it.
	Path          string
	Before, After []byte
}

// Prepare reads a file and applies the edits in memory. It writes nothing. The error names the file.
func Prepare(path string, edits []Edit) (Change, error) {
	format, err := FormatOf(path)
	if err != nil {
		return Change{}, err
	}
	c := Change{Path: path}
	if c.Before, err = input.ReadUpTo(path, maxFileBytes+1); err != nil {
		return Change{}, err
	}
	if c.After, err = Splice(format, c.Before, edits); err != nil {
		return Change{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Diff returns the change as a unified diff; empty if there is none.
func (c Change) Diff() string {
	text := string(diff.Diff(c.Path, c.Before, c.Path, c.After))
	return strings.TrimPrefix(text, "diff "+c.Path+" "+c.Path+"\n")
}

// Write replaces the files of all changes, or none, and returns the backups it made beside them; see
// [rewrite.ReplaceFiles]. If one of the files has changed since it was prepared, none is replaced.
func Write(ctx context.Context, changes []Change) (backups []string, err error) {
	return rewrite.ReplaceFiles(ctx, lists.Map(changes, func(c Change) rewrite.File { return rewrite.File(c) }))
}
