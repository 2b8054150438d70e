package report

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

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
