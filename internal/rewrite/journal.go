package rewrite

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/vprof/vprof/internal/lists"
)

// journalName is the journal's name in each directory where files are being replaced.
const journalName = ".vprof-rewrite.json"

// A journal says what files held before a process began to replace them, so that
// another can undo what it did not finish. Every directory concerned has a copy;
// the replacement is complete as soon as the copy in the first one is gone. A copy applies only to files in its own
// directory, so that a journal in a downloaded project cannot touch files elsewhere.
type journal struct {
	// Dirs are the directories, sorted.
	Dirs  []string       `json:"dirs"`
	Files []journalEntry `json:"files"`
}

type journalEntry struct {
	Path   string `json:"path"`
	Staged string `json:"staged"`
	// Backup is empty for a new file.
	Backup  string `json:"backup,omitempty"`
	InPlace bool   `json:"in_place,omitempty"`
	// Before and After are SHA-256 of the contents, hexadecimal.
	Before string `json:"before,omitempty"`
	After  string `json:"after"`
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func journalOf(targets []*target) *journal {
	j := &journal{}
	for _, t := range targets {
		e := journalEntry{Path: t.path, Staged: t.staged, Backup: t.backup, InPlace: t.inPlace, After: digest(t.after)}
		if t.before != nil {
			e.Before = digest(t.before)
		}
		j.Dirs, j.Files = append(j.Dirs, filepath.Dir(t.path)), append(j.Files, e)
	}
	slices.Sort(j.Dirs)
	j.Dirs = slices.Compact(j.Dirs)
	return j
}

// Begin implements [disk].
func (d osDisk) Begin(j *journal) error {
	data, err := json.Marshal(j)
	if err != nil {
		return err
	}
	for _, dir := range j.Dirs {
		path := filepath.Join(dir, journalName)
		staged, err := d.Stage(path, data, 0o600)
		if err == nil {
			err = d.Rename(staged, path)
		}
		if err == nil {
			err = d.Sync(dir)
		}
		if err != nil {
			return errors.Join(err, d.End(j))
		}
	}
	return nil
}

// End implements [disk].
func (d osDisk) End(j *journal) error {
	for i, dir := range j.Dirs {
		err := d.Remove(filepath.Join(dir, journalName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := d.Sync(dir); err != nil && i == 0 {
			return err
		}
	}
	return nil
}

// readJournal reads the journal of a directory; nil if it has none.
func readJournal(dir string) (*journal, []byte, error) {
	path := filepath.Join(dir, journalName)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	j := &journal{}
	if err := json.Unmarshal(data, j); err != nil || !slices.Contains(j.Dirs, dir) {
		return nil, nil, fmt.Errorf("%s is no journal of vprof's; remove it", path)
	}
	return j, data, nil
}

// lockAndRecover waits until no other process writes to the directories of files,
// undoes what a killed process left in them, and returns what unlocks them.
func lockAndRecover(paths []string) (unlock func(), err error) {
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
	for {
		slices.Sort(dirs) // all lock in one order
		dirs = slices.Compact(dirs)
		if unlock, err = lockAll(dirs); err != nil {
			return nil, err
		}
		more, err := recoverAll(dirs)
		if err != nil {
			unlock()
			return nil, err
		}
		if len(more) == 0 {
			return unlock, nil
		}
		unlock()
		dirs = append(dirs, more...)
	}
}

func lockAll(dirs []string) (unlock func(), err error) {
	var unlocks []func()
	unlock = func() {
		for _, u := range unlocks {
			u()
		}
	}
	for _, dir := range dirs {
		u, err := lock(dir)
		if err != nil {
			unlock()
			return nil, err
		}
		unlocks = append(unlocks, u)
	}
	return unlock, nil
}

// recoverAll undoes the journals of locked directories. If one is also about
// directories that are not locked, it returns these instead.
func recoverAll(dirs []string) (more []string, err error) {
	for _, dir := range dirs {
		j, data, err := readJournal(dir)
		if err != nil || j == nil {
			if err != nil {
				return nil, err
			}
			continue
		}
		for _, d := range j.Dirs {
			if _, copied, err := readJournal(d); err == nil && bytes.Equal(copied, data) && !slices.Contains(dirs, d) {
				more = append(more, d)
			}
		}
		if len(more) > 0 {
			return more, nil
		}
		if err := j.recover(data); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// recover undoes a journal of a process that was killed, in the directories that have a copy of it. Where the copy
// in the first is gone, all files had been replaced.
func (j *journal) recover(data []byte) error {
	bound := &journal{Dirs: slices.DeleteFunc(slices.Clone(j.Dirs), func(dir string) bool {
		_, copied, err := readJournal(dir)
		return err != nil || !bytes.Equal(copied, data)
	})}
	for _, e := range j.Files {
		dir := filepath.Dir(e.Path)
		if slices.Contains(bound.Dirs, dir) && filepath.Dir(e.Staged) == dir &&
			(e.Backup == "" || filepath.Dir(e.Backup) == dir) {
			bound.Files = append(bound.Files, e)
		}
	}
	if bound.Dirs[0] == j.Dirs[0] {
		return bound.undo(osDisk{})
	}
	for _, e := range bound.Files {
		discard(osDisk{}, e.Staged)
	}
	return osDisk{}.End(bound)
}

// undo brings the files back to what they held. Where it cannot, the journal and the backups stay.
func (j *journal) undo(d disk) error {
	errs := lists.Map(j.Files, func(e journalEntry) error { return e.undo(d) })
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, e := range j.Files {
		discard(d, e.Staged, e.Backup)
	}
	return d.End(j)
}

// undo brings a file back to what it held.
func (e journalEntry) undo(d disk) error {
	now, err := os.ReadFile(e.Path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	after := digest(now) == e.After
	switch {
	case e.Backup == "" && !missing && after:
		return d.Remove(e.Path)
	case e.Backup == "", !missing && digest(now) == e.Before:
		return nil // it was not made yet, or someone else has made it
	}
	if e.InPlace && !after { // half-written
		staged, err := os.ReadFile(e.Staged)
		after = err == nil && digest(staged) == e.After && bytes.HasPrefix(staged, now)
	}
	before, err := os.ReadFile(e.Backup)
	if err != nil || digest(before) != e.Before || !after || missing {
		return fmt.Errorf("a vprof that wrote %s was killed, and the file was changed since; what it held is in %s. "+
			"See that it is as it should be, and remove %s",
			e.Path, e.Backup, filepath.Join(filepath.Dir(e.Path), journalName))
	}
	if e.InPlace {
		err = d.Overwrite(e.Path, before)
	} else {
		err = d.Rename(e.Backup, e.Path)
	}
	if err != nil {
		return fmt.Errorf("%s could not be restored; what it held is in %s: %w", e.Path, e.Backup, err)
	}
	return nil
}
