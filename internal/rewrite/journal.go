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
)

// journalName is the journal's name in each directory that has files on their
// way.
const journalName = ".vprof-rewrite.json"

// A journal says what files held before a process began to replace them, so that
// another can undo what it did not finish. Every directory concerned has a copy;
// the work is done as soon as the copy in the first one is gone. A copy binds
// only the directory that it is in: a journal that came with a project
// reaches no file elsewhere.
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
		if err := j.undo(data); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// undo brings the files of a journal back to what they held, in the directories
// that have a copy of it.
func (j *journal) undo(data []byte) error {
	bound := *j
	bound.Dirs = slices.DeleteFunc(slices.Clone(j.Dirs), func(dir string) bool {
		_, copied, err := readJournal(dir)
		return err != nil || !bytes.Equal(copied, data)
	})
	bound.Files = slices.DeleteFunc(slices.Clone(j.Files), func(e journalEntry) bool {
		dir := filepath.Dir(e.Path)
		return !slices.Contains(bound.Dirs, dir) || filepath.Dir(e.Staged) != dir || e.Backup != "" &&
			filepath.Dir(e.Backup) != dir
	})
	finished := bound.Dirs[0] != j.Dirs[0]
	for _, e := range bound.Files {
		if finished {
			continue
		}
		if err := e.undo(); err != nil {
			return err
		}
	}
	for _, e := range bound.Files {
		_ = os.Remove(e.Staged)
		if !finished && e.Backup != "" {
			_ = os.Remove(e.Backup)
		}
	}
	return osDisk{}.End(&bound)
}

// undo brings a file back to what it held.
func (e journalEntry) undo() error {
	now, err := os.ReadFile(e.Path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil && !missing {
		return err
	}
	after := digest(now) == e.After
	switch {
	case e.Backup == "" && missing, e.Backup != "" && !missing && digest(now) == e.Before:
		return nil
	case e.Backup == "" && after:
		return os.Remove(e.Path)
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
		return osDisk{}.Overwrite(e.Path, before)
	}
	return os.Rename(e.Backup, e.Path)
}
