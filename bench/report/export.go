package report

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vprof/vprof/internal/rewrite"
)

// Export is an output file of a result.
type Export struct {
	path   string // with symbolic links followed
	format Format
	mode   os.FileMode
	// direct is set for what cannot be replaced by a rename: a device, a pipe.
	direct bool
}

// Exports makes sure, before the work begins, that every file can be written. A file that exists keeps its content
// until the first result, one that does not is not there until then. The format of a file is the one of its suffix.
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

// writable makes sure that a file can be written. Of one that is not there yet, nothing is left.
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
	// A rename must not replace a link.
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
		return named(e.path, rewrite.Create(e.path, e.mode, write))
	}
	f, err := os.OpenFile(e.path, os.O_WRONLY|os.O_TRUNC, e.mode)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	if err = write(b); err == nil {
		err = b.Flush()
	}
	return named(e.path, errors.Join(err, f.Close()))
}

// named returns an error about the file that was to be written, and not about the hidden one
// beside it that is renamed at the end.
func named(path string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", path, at.Err)
	}
	return err
}
