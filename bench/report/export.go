package report

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
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

// named returns an error about the file that was to be written, and not about the hidden one
// beside it that is renamed at the end.
func named(path string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", path, at.Err)
	}
	return err
}

// pending is a file that is being written: under a hidden name in the same folder until it is complete.
type pending struct {
	file *os.File
	out  *bufio.Writer
	path string
}

func begin(path string, mode fs.FileMode) (*pending, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	p := &pending{file: f, out: bufio.NewWriterSize(f, 1<<20), path: path}
	if err := f.Chmod(mode); err != nil {
		return nil, errors.Join(err, p.drop())
	}
	return p, nil
}

// replace puts the file into its place, at once where the system can.
func (p *pending) replace() error {
	err := errors.Join(p.out.Flush(), p.file.Sync())
	if err != nil {
		return errors.Join(err, p.drop())
	}
	// Windows renames no file that is open.
	if err := p.file.Close(); err != nil {
		return errors.Join(err, os.Remove(p.file.Name()))
	}
	if err := os.Rename(p.file.Name(), p.path); err != nil {
		return errors.Join(err, os.Remove(p.file.Name()))
	}
	return nil
}

// drop gives the file up; what was in its place stays.
func (p *pending) drop() error { return errors.Join(p.file.Close(), os.Remove(p.file.Name())) }

// replaced gives a file what write makes, if that succeeds.
func replaced(path string, mode fs.FileMode, write func(io.Writer) error) error {
	p, err := begin(path, mode)
	if err != nil {
		return err
	}
	if err := write(p.out); err != nil {
		return errors.Join(err, p.drop())
	}
	return p.replace()
}

func buffered(w io.Writer, write func(io.Writer) error) error {
	b := bufio.NewWriterSize(w, 1<<20)
	if err := write(b); err != nil {
		return err
	}
	return b.Flush()
}
