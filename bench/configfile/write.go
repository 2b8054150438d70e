package configfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pmezard/go-difflib/difflib"
)

// Change is a file and what it is to become.
type Change struct {
	// Path is the file, as the user names it.
	Path          string
	Before, After []byte
}

// Prepare reads a file and makes the edits, without writing anything. The error
// names the file.
func Prepare(path string, edits []Edit) (Change, error) {
	format, err := FormatOf(path)
	if err != nil {
		return Change{}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return Change{}, err
	}
	defer f.Close()
	c := Change{Path: path}
	if c.Before, err = io.ReadAll(io.LimitReader(f, maxFile+1)); err != nil {
		return Change{}, err
	}
	if c.After, err = Splice(format, c.Before, edits); err != nil {
		return Change{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Changed tells whether anything is to be written.
func (c Change) Changed() bool { return !bytes.Equal(c.Before, c.After) }

// Diff is the change as a unified diff; empty if there is none.
func (c Change) Diff() string {
	// The error is one of writing into memory.
	diff, _ := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: lines(c.Before), B: lines(c.After), FromFile: c.Path, ToFile: c.Path, Context: 3,
	})
	return diff
}

// lines with their breaks; a last line without one says so as diff does.
func lines(data []byte) []string {
	var out []string
	for line := range bytes.Lines(data) {
		s := string(line)
		if line[len(line)-1] != '\n' {
			s += "\n\\ No newline at end of file\n"
		}
		out = append(out, s)
	}
	return out
}

// Write replaces the files of all changes, or none, and returns the backups it
// made beside them: the file's name and ".backup", or ".backup.1" and so on where
// there is one already. A file that is no longer what it was when the change was
// prepared, or that may not be written, stops everything before anything is
// touched. After an error the files hold what they held, and the backups are
// gone. Links stay links.
func Write(ctx context.Context, changes []Change) (backups []string, err error) {
	return write(ctx, changes, osFiles{})
}

// files is what writing needs of a file system. Tests have full and failing
// ones.
type files interface {
	// Stage writes data to a new file in the directory of path, with mode, and
	// returns its name. Nothing is left after an error.
	Stage(path string, data []byte, mode fs.FileMode) (string, error)
	Rename(from, to string) error
	// Link gives the staged file a name that nothing has; else it is an
	// fs.ErrExist.
	Link(from, to string) error
	Remove(path string) error
}

// target is a changed file on its way.
type target struct {
	path           string // with links followed
	before, after  []byte
	mode           fs.FileMode
	staged, backup string
}

func write(ctx context.Context, changes []Change, disk files) (backups []string, err error) {
	targets, err := openAll(changes)
	if err != nil {
		return nil, err
	}
	done := 0 // targets that have been replaced
	defer func() {
		if err = tidy(disk, targets, done, err); err != nil {
			backups = nil
		}
	}()
	for _, t := range targets {
		if t.staged, err = disk.Stage(t.path, t.after, t.mode); err != nil {
			return nil, fmt.Errorf("nothing was changed: %w", err)
		}
	}
	for _, t := range targets {
		if t.backup, err = backUp(disk, t); err != nil {
			return nil, fmt.Errorf("nothing was changed: %w", err)
		}
		backups = append(backups, t.backup)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, t := range targets {
		if err := disk.Rename(t.staged, t.path); err != nil {
			return nil, fmt.Errorf("nothing was changed: %w", err)
		}
		done++
	}
	return backups, nil
}

// openAll opens what changes are for and do change.
func openAll(changes []Change) ([]*target, error) {
	var targets []*target
	for _, c := range changes {
		if !c.Changed() {
			continue
		}
		t, err := open(c)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// tidy removes what was staged. After an error it brings the first done files
// back to what they were and removes the backups as well.
func tidy(disk files, targets []*target, done int, err error) error {
	failed := err != nil
	for i, t := range targets {
		if failed && i < done {
			err = errors.Join(err, restore(disk, t))
		}
		if t.staged != "" {
			_ = disk.Remove(t.staged) // it is gone already if all went well
		}
		if failed && t.backup != "" {
			_ = disk.Remove(t.backup)
		}
	}
	return err
}

// open makes sure that a file may be written and holds what it held when the
// change was prepared.
func open(c Change) (*target, error) {
	path, err := filepath.EvalSymlinks(c.Path)
	if err != nil {
		return nil, err
	}
	// A rename would replace a read-only file, too, and so would an administrator.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o222 == 0 {
		return nil, &fs.PathError{Op: "write", Path: c.Path, Err: fs.ErrPermission}
	}
	now, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(now, c.Before) {
		return nil, fmt.Errorf("%s: someone else changed it just now; nothing was changed, try again", c.Path)
	}
	return &target{path: path, before: c.Before, after: c.After, mode: info.Mode().Perm()}, nil
}

// backUp keeps what a file holds under a name that nothing has.
func backUp(disk files, t *target) (string, error) {
	staged, err := disk.Stage(t.path, t.before, t.mode)
	if err != nil {
		return "", err
	}
	defer func() { _ = disk.Remove(staged) }()
	for n := range 10_000 {
		name := t.path + ".backup"
		if n > 0 {
			name = fmt.Sprintf("%s.%d", name, n)
		}
		err := disk.Link(staged, name)
		if !errors.Is(err, fs.ErrExist) {
			return name, err
		}
	}
	return "", fmt.Errorf("%s has ten thousand backups; remove some", t.path)
}

// restore gives a file back what it held.
func restore(disk files, t *target) error {
	staged, err := disk.Stage(t.path, t.before, t.mode)
	if err == nil {
		err = disk.Rename(staged, t.path)
	}
	if err != nil {
		// The backup is all that is left of it.
		name := t.backup
		t.backup = ""
		return fmt.Errorf("%s could not be restored; what it held is in %s: %w", t.path, name, err)
	}
	return nil
}

// osFiles is the file system of the machine. Package renameio would do for one
// file at a time; here nothing may be renamed until all files are complete.
type osFiles struct{}

// Stage implements [files].
func (osFiles) Stage(path string, data []byte, mode fs.FileMode) (name string, err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err := f.Write(data); err != nil {
		return "", err
	}
	if err := f.Chmod(mode); err != nil {
		return "", err
	}
	if err := f.Sync(); err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// Rename implements [files].
func (osFiles) Rename(from, to string) error { return os.Rename(from, to) }

// Link implements [files]. Where the file system has no links, the file is
// copied.
func (osFiles) Link(from, to string) error {
	err := os.Link(from, to)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(to)
	}
	return err
}

// Remove implements [files].
func (osFiles) Remove(path string) error { return os.Remove(path) }
