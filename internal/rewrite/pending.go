package rewrite

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Pending is a file that is being written, under a hidden name in the folder of its path until it is complete.
type Pending struct {
	*bufio.Writer
	file *os.File
	path string
}

// CreatePending creates the hidden file for a path.
func CreatePending(path string, mode fs.FileMode) (*Pending, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	p := &Pending{bufio.NewWriterSize(f, 1<<20), f, path}
	if err := f.Chmod(mode); err != nil {
		return nil, errors.Join(err, p.Discard())
	}
	return p, nil
}

// close closes the hidden file, since Windows does not rename open files.
func (p *Pending) close() error { return errors.Join(p.Flush(), p.file.Sync(), p.file.Close()) }

// Replace renames the file to its path, atomically if the system can. After an error it removes the hidden file.
func (p *Pending) Replace() error {
	err := p.close()
	if err == nil {
		err = os.Rename(p.file.Name(), p.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(p.file.Name()))
	}
	return nil
}

// Discard removes the hidden file. A file at the path itself does not change.
func (p *Pending) Discard() error {
	p.file.Close() // which it may be already
	return os.Remove(p.file.Name())
}

// Append appends data to a file in one write, so that several processes may append at the same time.
func Append(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// Create replaces a file's content by the output of write if that succeeds, without a backup. Other processes read
// either all of the old content or all of the new.
func Create(path string, mode fs.FileMode, write func(io.Writer) error) error {
	p, err := CreatePending(path, mode)
	if err != nil {
		return err
	}
	if err := write(p); err != nil {
		return errors.Join(err, p.Discard())
	}
	return p.Replace()
}
