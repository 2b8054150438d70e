// Package rewrite replaces files that people keep: each whole, all of several or none, with a backup that overwrites
// no older one. A full disk or an interrupt leaves the old contents. If the process is killed, each file has its old
// or its new content, and the backups of all files are complete.
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
	"slices"

	"github.com/vprof/vprof/internal/lists"
)

// File is a file and its new contents.
type File struct {
	// Path is the file, as the user names it.
	Path string
	// Before is the file's content, nil if there is no file yet; After is its new content.
	Before, After []byte
}

func (f File) changes() bool { return f.Before == nil || !bytes.Equal(f.Before, f.After) }

// ReplaceFiles replaces all files, or none, and returns the backups it made beside them: the file's name and ".backup",
// or ".backup.1" and so on where there is one already. A file that does not change is left alone; a new one has no
// backup. If a file does not hold Before, or may not be written, nothing is touched. After an error all files have
// their old contents, and the backups are removed. Symbolic links stay links, and files keep their owner, mode,
// extended attributes and hard links. Other processes that write through this package wait meanwhile.
func ReplaceFiles(ctx context.Context, files []File) (backups []string, err error) {
	unlock, err := lockAll(lists.Map(files, func(f File) string { return f.Path }))
	if err != nil {
		return nil, err
	}
	defer unlock()
	return write(ctx, files, osDisk{})
}

// Update replaces the content of one file by the result of change, which gets nil if the file does not exist. No other
// process writes it through this package meanwhile. It returns the backup, as [Files] does; empty if there is none.
func Update(ctx context.Context, path string, change func(before []byte) ([]byte, error)) (backup string, err error) {
	unlock, err := lockAll([]string{path})
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

// lockAll waits until no other process writes to the directories of files, and returns the function that unlocks them.
func lockAll(paths []string) (unlock func(), err error) {
	var dirs []string
	for _, path := range paths {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		dir, err := filepath.Abs(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs) // all processes lock in one order
	var unlocks []func()
	unlock = func() {
		for _, u := range unlocks {
			u()
		}
	}
	for _, dir := range slices.Compact(dirs) {
		u, err := lock(dir)
		if err != nil {
			unlock()
			return nil, err
		}
		unlocks = append(unlocks, u)
	}
	return unlock, nil
}

// fileSystem has the operations of a file system that writing needs; tests have disks that are full or fail.
type fileSystem interface {
	// Stage writes data to a new file beside path, with mode, and returns its name. Nothing is left after an error.
	Stage(path string, data []byte, mode fs.FileMode) (string, error)
	// Overwrite gives a file other content without making it another file.
	Overwrite(path string, data []byte) error
	Rename(from, to string) error
	// Link gives the staged file a new name. If a file has that name, the error is an fs.ErrExist.
	Link(from, to string) error
	Remove(path string) error
}

// target is a file that is being replaced.
type target struct {
	name, path     string // as the user names it, and with links followed
	before, after  []byte // before is nil for a new file
	mode           fs.FileMode
	staged, backup string
	// inPlace marks a file to overwrite: a new file renamed over it would lose hard links, its owner or attributes.
	inPlace bool
}

// write replaces files whose directories are locked.
func write(ctx context.Context, files []File, d fileSystem) (backups []string, err error) {
	targets, err := openAll(files)
	if err != nil || len(targets) == 0 {
		return nil, err
	}
	if backups, err = prepare(ctx, d, targets); err != nil {
		for _, t := range targets {
			discard(d, t.staged, t.backup)
		}
		return nil, err
	}
	for i, t := range targets {
		if err := t.replace(d); err != nil {
			return nil, errors.Join(fmt.Errorf("nothing was changed: %w", err), restore(d, targets, i))
		}
	}
	for _, t := range targets {
		discard(d, t.staged) // left where another file was overwritten or linked
	}
	return backups, nil
}

// restore restores the targets before failed, and failed itself if it was overwritten, to their old content. It keeps
// the backup of a file that it cannot restore.
func restore(d fileSystem, targets []*target, failed int) error {
	var errs []error
	for i, t := range targets {
		var err error
		switch {
		case i > failed, i == failed && !t.inPlace:
		case t.before == nil:
			err = d.Remove(t.path)
		case t.inPlace:
			err = d.Overwrite(t.path, t.before)
		default:
			err = d.Rename(t.backup, t.path)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s could not be restored; its content is in %s: %w", t.path, t.backup, err))
			continue
		}
		discard(d, t.staged, t.backup)
	}
	return errors.Join(errs...)
}

// discard removes files that are no longer needed. Names may be empty, and files may be missing.
func discard(d fileSystem, names ...string) {
	for _, name := range names {
		if name != "" {
			_ = d.Remove(name)
		}
	}
}

// prepare writes the new contents and the backups, and checks that no other process changed the files meanwhile.
func prepare(ctx context.Context, d fileSystem, targets []*target) (backups []string, err error) {
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
	return backups, nil
}

// stageAll writes the new and the old contents of files next to them.
func stageAll(d fileSystem, targets []*target) (backups []string, err error) {
	for _, t := range targets {
		if t.staged, err = d.Stage(t.path, t.after, t.mode); err != nil {
			return nil, err
		}
		if t.before != nil {
			t.inPlace = links(t.path) > 1 || copyMetadata(t.path, t.staged) != nil
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

// replace replaces the target's content by the new one.
func (t *target) replace(d fileSystem) error {
	switch {
	case t.before == nil:
		return d.Link(t.staged, t.path) // which replaces nothing that someone else made
	case t.inPlace:
		return d.Overwrite(t.path, t.after)
	}
	return d.Rename(t.staged, t.path)
}

// openAll opens the files whose content changes.
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

// open checks that a file may be written and has the expected contents.
func open(f File) (*target, error) {
	path, err := filepath.EvalSymlinks(f.Path)
	t := &target{name: f.Path, path: path, before: f.Before, after: f.After, mode: 0o644}
	switch {
	case f.Before == nil && err == nil:
		return nil, fmt.Errorf("%s: another process created this file meanwhile, so nothing was changed; try again",
			f.Path)
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

// unchanged returns an error if a file's contents have changed since it was opened, or it may not be written.
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
		err = fmt.Errorf("%s: another process changed this file meanwhile, so nothing was changed; try again", t.name)
	}
	return err
}

// backUp copies a file's content to a new name.
func backUp(d fileSystem, t *target) (string, error) {
	staged, err := d.Stage(t.path, t.before, t.mode)
	if err != nil {
		return "", err
	}
	_ = copyMetadata(t.path, staged) // as far as it goes: it is a copy
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
	return "", fmt.Errorf("%s: there are already 10,000 backups next to this file; remove some", t.path)
}

// osDisk is the file system of the machine. Package renameio replaces one file at a time; here no file may be renamed
// until all are complete.
type osDisk struct{}

// Stage writes data to a new temporary file, for [disk].
func (osDisk) Stage(path string, data []byte, mode fs.FileMode) (string, error) {
	p, err := CreatePending(path, mode)
	if err != nil {
		return "", err
	}
	if _, err = p.Write(data); err == nil {
		err = p.close()
	}
	if err != nil {
		return "", errors.Join(err, p.Discard())
	}
	return p.file.Name(), nil
}

// Overwrite replaces the content of a file in place, for [disk].
func (osDisk) Overwrite(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// Rename renames a file, for [disk].
func (osDisk) Rename(from, to string) error { return os.Rename(from, to) }

// Link implements [disk]. On file systems without hard links, it copies the file.
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

// Remove deletes a file, for [disk].
func (osDisk) Remove(path string) error { return os.Remove(path) }
