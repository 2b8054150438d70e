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
	// direct reports whether the file cannot be replaced by a rename: a device or a pipe.
	direct bool
}

// Exports checks, before the work begins, that every file can be written. An existing file keeps its content until the
// first result; a new file does not exist until then. The suffix of a file determines its format.
func Exports(paths []string) ([]Export, error) {
	exports := make([]Export, len(paths))
	for i, path := range paths {
		format, err := FormatOf(path)
		if err != nil {
			return nil, err
		}
		if exports[i], err = newExport(path); err != nil {
			return nil, err
		}
		exports[i].format = format
	}
	return exports, nil
}

// newExport checks that a file can be written, and removes it again if it is new.
func newExport(path string) (Export, error) {
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

// WriteFile replaces a file's content by the output of write, which may be larger than memory. A reader sees either all
// of the old content or all of the new. The file may have any suffix.
func WriteFile(path string, write func(io.Writer) error) error {
	e, err := newExport(path)
	if err != nil {
		return err
	}
	return e.write(write)
}

// Write replaces the file's content with d, atomically if the system can: a reader sees either all of the old content
// or all of the new.
func (e Export) Write(d Document) error {
	return e.write(func(w io.Writer) error { return Write(w, e.format, d) })
}

func (e Export) write(write func(io.Writer) error) error {
	if !e.direct {
		return pathError(e.path, rewrite.Create(e.path, e.mode, write))
	}
	f, err := os.OpenFile(e.path, os.O_WRONLY|os.O_TRUNC, e.mode)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	if err = write(b); err == nil {
		err = b.Flush()
	}
	return pathError(e.path, errors.Join(err, f.Close()))
}

// pathError returns the error with the path of the file in place of the temporary file that is renamed at the end.
func pathError(path string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", path, at.Err)
	}
	return err
}
