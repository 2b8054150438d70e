package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2/maybe"
)

// Export is a file that a result goes to.
type Export struct {
	path   string // with symbolic links followed
	format Format
	mode   os.FileMode
	// direct is set for what cannot be replaced by a rename: a device, a pipe.
	direct bool
}

// Exports makes sure, before the work begins, that every file can be written.
// A file that exists keeps its content until the first result. The format of
// a file is the one of its suffix.
func Exports(paths []string) ([]Export, error) {
	var exports []Export
	for _, path := range paths {
		format, err := FormatOf(path)
		if err != nil {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		f.Close()
		if err != nil {
			return nil, err
		}
		// A rename must not take the place of a link.
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return nil, err
		}
		exports = append(exports, Export{path, format, info.Mode().Perm(), !info.Mode().IsRegular()})
	}
	return exports, nil
}

// Write replaces the file's content with d, at once where the system can: a
// reader sees either all of the old or all of the new.
func (e Export) Write(d Document) error {
	var b bytes.Buffer
	if err := Write(&b, e.format, d); err != nil {
		return fmt.Errorf("%s: %w", e.path, err)
	}
	if e.direct {
		return os.WriteFile(e.path, b.Bytes(), e.mode)
	}
	return maybe.WriteFile(e.path, b.Bytes(), e.mode)
}
