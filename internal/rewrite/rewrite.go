// Package rewrite replaces files that people keep: whole, all of several or
// none, with a backup of each that overwrites no older one. Whatever happens in
// between, a full disk, an interrupt, a process that is killed or a machine that
// loses power, no file stays half-written: a journal beside the files says what
// was being replaced, and the next process that reads or writes them through this package
// brings back what they held ([Recover]).
package rewrite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// File is a file and what it is to become.
type File struct {
	// Path is the file, as the user names it.
	Path string
	// Before is what it holds; nil says that there is no such file yet.
	Before, After []byte
}

func (f File) changes() bool { return f.Before == nil || !bytes.Equal(f.Before, f.After) }

// Files replaces all files, or none, and returns the backups it made beside
// them: the file's name and ".backup", or ".backup.1" and so on where there is
// one already. A file that does not change is left alone; a new one has no
// backup. A file that does not hold what was said, or that may not be written,
// stops everything before anything is touched. After an error the files hold
// what they held, and the backups are gone. Links stay links, and files keep
// their owner, mode, extended attributes and hard links. Others that write
// through this package wait meanwhile.
func Files(ctx context.Context, files []File) (backups []string, err error) {
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	unlock, err := lockAndRecover(paths)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return write(ctx, files, osDisk{})
}

// Update replaces one file by what change makes of what it holds, which is nil
// if there is no such file. No other process writes it through this package in
// between. It returns the backup, as [Files] does; empty if there is none.
func Update(ctx context.Context, path string, change func(before []byte) ([]byte, error)) (backup string, err error) {
	unlock, err := lockAndRecover([]string{path})
	if err != nil {
		return "", err
	}
	defer unlock()
	before, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		before, err = nil, nil
	} else if before == nil {
		before = []byte{}
	}
	if err != nil {
		return "", err
	}
	after, err := change(before)
	if err != nil {
		return "", err
	}
	backups, err := write(ctx, []File{{path, before, after}}, osDisk{})
	if len(backups) == 0 {
		return "", err
	}
	return backups[0], err
}

// Recover brings back what files held that a process was replacing when it was
// killed. To be called before they are read to be changed.
func Recover(paths ...string) error {
	unlock, err := lockAndRecover(paths)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // then there is nothing to read either
	}
	if err != nil {
		return err
	}
	unlock()
	return nil
}

// disk is what writing needs of a file system. Tests have full and failing ones.
type disk interface {
	// Stage writes data to a new file in the directory of path, with mode, and
	// returns its name. Nothing is left after an error.
	Stage(path string, data []byte, mode fs.FileMode) (string, error)
	// Overwrite gives a file other content without making it another file.
	Overwrite(path string, data []byte) error
	// Begin writes a journal to all directories that it names, End takes it away
	// again.
	Begin(j *journal) error
	End(j *journal) error
	// Sync makes sure that the names in a directory outlast a loss of power.
	Sync(dir string) error
	Rename(from, to string) error
	// Link gives the staged file a name that nothing has; else it is an
	// fs.ErrExist.
	Link(from, to string) error
	Remove(path string) error
}

// target is a file that is being replaced.
type target struct {
	name, path     string // as the user names it, and with links followed
	before, after  []byte // before is nil for a new file
	mode           fs.FileMode
	staged, backup string
	// inPlace is set for a file that would lose hard links, its owner or
	// attributes if another took its place.
	inPlace bool
}

func write(ctx context.Context, files []File, d disk) (backups []string, err error) {
	targets, err := openAll(files)
	if err != nil {
		return nil, err
	}
	if len(targets) == 0 {
		return nil, nil
	}
	done := 0 // targets that have been replaced, or are about to be
	var j *journal
	defer func() {
		if err = tidy(d, targets, done, j, err); err != nil {
			backups = nil
		}
	}()
	if backups, err = stageAll(d, targets); err != nil {
		return nil, fmt.Errorf("nothing was changed: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, t := range targets {
		if err := t.unchanged(); err != nil {
			return nil, err
		}
	}
	j = journalOf(targets)
	if err := d.Begin(j); err != nil {
		return nil, fmt.Errorf("nothing was changed: %w", err)
	}
	for _, t := range targets {
		done++
		if err := t.put(d); err != nil {
			return nil, fmt.Errorf("nothing was changed: %w", err)
		}
	}
	for _, dir := range j.Dirs {
		if err := d.Sync(dir); err != nil {
			return nil, fmt.Errorf("nothing was changed: %w", err)
		}
	}
	return backups, d.End(j)
}

// stageAll writes what files are to hold, and what they held, beside them.
func stageAll(d disk, targets []*target) (backups []string, err error) {
	for _, t := range targets {
		if t.staged, err = d.Stage(t.path, t.after, t.mode); err != nil {
			return nil, err
		}
		if t.before != nil {
			t.inPlace = links(t.path) > 1 || carryOver(t.path, t.staged) != nil
		}
	}
	for _, t := range targets {
		if t.before == nil {
			continue
		}
		if t.backup, err = backUp(d, t); err != nil {
			return nil, err
		}
		backups = append(backups, t.backup)
	}
	return backups, nil
}

// put gives a file its new content.
func (t *target) put(d disk) error {
	switch {
	case t.before == nil:
		return d.Link(t.staged, t.path) // which replaces nothing that someone else made
	case t.inPlace:
		return d.Overwrite(t.path, t.after)
	}
	return d.Rename(t.staged, t.path)
}

// openAll opens what changes.
func openAll(files []File) ([]*target, error) {
	var targets []*target
	for _, f := range files {
		if !f.changes() {
			continue
		}
		t, err := open(f)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// tidy removes what was staged. After an error it brings the first done files
// back to what they were and removes the backups and the journal as well.
func tidy(d disk, targets []*target, done int, j *journal, err error) error {
	failed := err != nil
	restored := true
	for i, t := range targets {
		if failed && i < done {
			if wrong := restore(d, t); wrong != nil {
				err, restored = errors.Join(err, wrong), false
			}
		}
		if t.staged != "" {
			_ = d.Remove(t.staged) // it is gone already if all went well
		}
		if failed && t.backup != "" {
			_ = d.Remove(t.backup)
		}
	}
	if failed && j != nil && restored {
		err = errors.Join(err, d.End(j))
	}
	return err
}

// open makes sure that a file may be written and holds what it is said to hold.
func open(f File) (*target, error) {
	path, err := filepath.EvalSymlinks(f.Path)
	t := &target{name: f.Path, path: path, before: f.Before, after: f.After, mode: 0o644}
	switch {
	case f.Before == nil && err == nil:
		return nil, fmt.Errorf("%s: someone else made it just now; nothing was changed, try again", f.Path)
	case f.Before == nil:
		t.path = f.Path
		return t, nil
	case err != nil:
		return nil, err
	}
	// A rename would replace a read-only file, too, and so would an administrator.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if t.mode = info.Mode().Perm(); t.mode&0o222 == 0 {
		return nil, &fs.PathError{Op: "write", Path: f.Path, Err: fs.ErrPermission}
	}
	return t, t.unchanged()
}

// unchanged is an error if a file no longer holds what it is said to hold, or
// may not be written.
func (t *target) unchanged() error {
	if t.before == nil {
		return nil
	}
	f, err := os.OpenFile(t.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	now, err := io.ReadAll(io.LimitReader(f, int64(len(t.before))+1))
	if err == nil && !bytes.Equal(now, t.before) {
		err = fmt.Errorf("%s: someone else changed it just now; nothing was changed, try again", t.name)
	}
	return err
}

// backUp keeps what a file holds under a name that nothing has.
func backUp(d disk, t *target) (string, error) {
	staged, err := d.Stage(t.path, t.before, t.mode)
	if err != nil {
		return "", err
	}
	_ = carryOver(t.path, staged) // as far as it goes: it is a copy
	defer func() { _ = d.Remove(staged) }()
	for n := range 10_000 {
		name := t.path + ".backup"
		if n > 0 {
			name = fmt.Sprintf("%s.%d", name, n)
		}
		err := d.Link(staged, name)
		if !errors.Is(err, fs.ErrExist) {
			return name, err
		}
	}
	return "", fmt.Errorf("%s has ten thousand backups; remove some", t.path)
}

// restore gives a file back what it held, if it holds anything else.
func restore(d disk, t *target) error {
	now, err := os.ReadFile(t.path)
	switch {
	case t.before == nil && err == nil && bytes.Equal(now, t.after):
		return d.Remove(t.path)
	case t.before == nil, err == nil && bytes.Equal(now, t.before):
		return nil
	case t.inPlace:
		err = d.Overwrite(t.path, t.before)
	default:
		var staged string
		if staged, err = d.Stage(t.path, t.before, t.mode); err == nil {
			_ = carryOver(t.path, staged)
			err = d.Rename(staged, t.path)
		}
	}
	if err != nil {
		// Only the backup remains.
		name := t.backup
		t.backup = ""
		return fmt.Errorf("%s could not be restored; what it held is in %s: %w", t.path, name, err)
	}
	return nil
}

// osDisk is the file system of the machine. Package renameio would do for one
// file at a time; here nothing may be renamed until all files are complete.
type osDisk struct{}

// Stage implements [disk].
func (osDisk) Stage(path string, data []byte, mode fs.FileMode) (name string, err error) {
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

// Overwrite implements [disk].
func (osDisk) Overwrite(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// Sync implements [disk].
func (osDisk) Sync(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, fs.ErrInvalid) {
		return err
	}
	return nil
}

// Rename implements [disk].
func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }

// Link implements [disk]. Where the file system has no links, the file is
// copied.
func (osDisk) Link(from, to string) error {
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

// Remove implements [disk].
func (osDisk) Remove(path string) error { return os.Remove(path) }
