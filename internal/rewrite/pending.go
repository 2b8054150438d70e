package rewrite

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Pending is a file that is being written: under a hidden name in the folder of its path until it is complete.
type Pending struct {
	*bufio.Writer
	file *os.File
	path string
}

// Begin makes the hidden file for a path.
func Begin(path string, mode fs.FileMode) (*Pending, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	p := &Pending{bufio.NewWriterSize(f, 1<<20), f, path}
	if err := f.Chmod(mode); err != nil {
		return nil, errors.Join(err, p.Drop())
	}
	return p, nil
}

// close completes the hidden file, since Windows renames no file that is open.
func (p *Pending) close() error { return errors.Join(p.Flush(), p.file.Sync(), p.file.Close()) }

// Replace puts the file into its place, at once where the system can. After an error the hidden file is removed.
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

// Drop removes the hidden file. A file at the path itself stays as it is.
func (p *Pending) Drop() error {
	p.file.Close() // which it may be already
	return os.Remove(p.file.Name())
}

// Append adds data to the end of a file, at once, so that several processes may do so.
func Append(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// Create gives a file the content that write writes, if that succeeds, without a backup. Another process reads either
// all of the old content or all of the new.
func Create(path string, mode fs.FileMode, write func(io.Writer) error) error {
	p, err := Begin(path, mode)
	if err != nil {
		return err
	}
	if err := write(p); err != nil {
		return errors.Join(err, p.Drop())
	}
	return p.Replace()
}
