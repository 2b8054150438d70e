package configfile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// two are changes of two files in a new directory.
func two(t *testing.T) (dir string, changes []Change) {
	dir = t.TempDir()
	for name, text := range map[string]string{"a.yaml": "n: 1 # a\n", "b.toml": "n = 1 # b\n"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o640))
	}
	for _, name := range []string{"a.yaml", "b.toml"} {
		c, err := Prepare(filepath.Join(dir, name), []Edit{{Path: "n", Value: int64(2)}})
		require.NoError(t, err)
		changes = append(changes, c)
	}
	return dir, changes
}

// contents are the files of a directory.
func contents(t *testing.T, dir string) map[string]string {
	found := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		found[e.Name()] = string(data)
	}
	return found
}

var untouched = map[string]string{"a.yaml": "n: 1 # a\n", "b.toml": "n = 1 # b\n"}

func TestWriteReplacesAllAndKeepsNumberedBackups(t *testing.T) {
	dir, changes := two(t)
	backups, err := Write(t.Context(), changes)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "a.yaml.backup"), filepath.Join(dir, "b.toml.backup")}, backups)

	again, err := Prepare(filepath.Join(dir, "a.yaml"), []Edit{{Path: "n", Value: int64(3)}})
	require.NoError(t, err)
	same, err := Prepare(filepath.Join(dir, "b.toml"), []Edit{{Path: "n", Value: int64(2)}})
	require.NoError(t, err)
	require.False(t, same.Changed())
	backups, err = Write(t.Context(), []Change{again, same})
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "a.yaml.backup.1")}, backups)

	require.Equal(t, map[string]string{
		"a.yaml": "n: 3 # a\n", "a.yaml.backup": "n: 1 # a\n", "a.yaml.backup.1": "n: 2 # a\n",
		"b.toml": "n = 2 # b\n", "b.toml.backup": "n = 1 # b\n",
	}, contents(t, dir))
	info, err := os.Stat(filepath.Join(dir, "a.yaml"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o640), info.Mode().Perm())
}

func TestWriteStopsBeforeItTouchesAnything(t *testing.T) {
	t.Run("changed meanwhile", func(t *testing.T) {
		dir, changes := two(t)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "b.toml"), []byte("n = 7\n"), 0o640))
		_, err := Write(t.Context(), changes)
		require.ErrorContains(t, err, "someone else changed it")
		require.Equal(t, map[string]string{"a.yaml": "n: 1 # a\n", "b.toml": "n = 7\n"}, contents(t, dir))
	})
	t.Run("gone", func(t *testing.T) {
		dir, changes := two(t)
		require.NoError(t, os.Remove(filepath.Join(dir, "b.toml")))
		_, err := Write(t.Context(), changes)
		require.ErrorIs(t, err, fs.ErrNotExist)
		require.Equal(t, map[string]string{"a.yaml": "n: 1 # a\n"}, contents(t, dir))
	})
	t.Run("read-only", func(t *testing.T) {
		dir, changes := two(t)
		require.NoError(t, os.Chmod(filepath.Join(dir, "b.toml"), 0o440))
		_, err := Write(t.Context(), changes)
		require.ErrorIs(t, err, fs.ErrPermission)
		require.Equal(t, untouched, contents(t, dir))
	})
	t.Run("interrupted", func(t *testing.T) {
		dir, changes := two(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := Write(ctx, changes)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, untouched, contents(t, dir))
	})
}

func TestLinksStayLinks(t *testing.T) {
	dir, _ := two(t)
	link := filepath.Join(dir, "link.yaml")
	require.NoError(t, os.Symlink("a.yaml", link))
	c, err := Prepare(link, []Edit{{Path: "n", Value: int64(2)}})
	require.NoError(t, err)
	_, err = Write(t.Context(), []Change{c})
	require.NoError(t, err)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&fs.ModeSymlink)
	require.Equal(t, "n: 2 # a\n", contents(t, dir)["a.yaml"])
}

// faulty fails at a call of its choice.
type faulty struct {
	osFiles
	calls *int
	at    int
}

func (f faulty) fails() error {
	*f.calls++
	if *f.calls == f.at {
		return syscall.ENOSPC
	}
	return nil
}

func (f faulty) Stage(path string, data []byte, mode fs.FileMode) (string, error) {
	if err := f.fails(); err != nil {
		return "", err
	}
	return f.osFiles.Stage(path, data, mode)
}

func (f faulty) Rename(from, to string) error {
	if err := f.fails(); err != nil {
		return err
	}
	return f.osFiles.Rename(from, to)
}

func (f faulty) Link(from, to string) error {
	if err := f.fails(); err != nil {
		return err
	}
	return f.osFiles.Link(from, to)
}

// Two files take two stagings, two backups of two calls each, and two renames.
func TestWriteIsAllOrNothingWhereverTheDiskIsFull(t *testing.T) {
	for at := 1; ; at++ {
		dir, changes := two(t)
		calls := 0
		_, err := write(t.Context(), changes, faulty{calls: &calls, at: at})
		if err == nil {
			require.Equal(t, 9, at)
			return
		}
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.Equal(t, untouched, contents(t, dir), "call %d", at)
	}
}

// If even restoring fails, the backup stays and the error names it.
func TestWhatCannotBeRestoredStaysInItsBackup(t *testing.T) {
	dir, changes := two(t)
	calls := 0
	_, err := write(t.Context(), changes, stubborn{faulty{calls: &calls, at: 8}})
	require.ErrorContains(t, err, "a.yaml.backup")
	require.Equal(t, "n: 1 # a\n", contents(t, dir)["a.yaml.backup"])
}

// stubborn fails from its call on.
type stubborn struct{ faulty }

func (s stubborn) Rename(from, to string) error {
	if err := s.fails(); err != nil || *s.calls > s.at {
		return errors.Join(err, syscall.ENOSPC)
	}
	return s.osFiles.Rename(from, to)
}

func TestDiffIsUnified(t *testing.T) {
	c := Change{Path: "c.yaml", Before: []byte("a: 1\nb: 2\nc: 3"), After: []byte("a: 1\nb: 5\nc: 3")}
	require.Equal(t, "--- c.yaml\n+++ c.yaml\n@@ -1,3 +1,3 @@\n a: 1\n-b: 2\n+b: 5\n c: 3\n\\ No newline at end of file\n", c.Diff())
	require.Empty(t, Change{Path: "c.yaml", Before: []byte("a"), After: []byte("a")}.Diff())
}

func TestPrepareNamesTheFile(t *testing.T) {
	_, err := Prepare("no.yaml", nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = Prepare("config.ini", nil)
	require.ErrorContains(t, err, "suffix")
	path := filepath.Join(t.TempDir(), "c.json")
	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = Prepare(path, nil)
	require.NoError(t, err) // nothing to edit, nothing to read
	_, err = Prepare(path, []Edit{{Path: "a", Value: int64(1)}})
	require.ErrorContains(t, err, path)
}

func TestReadFindsSingleValues(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"c.yaml": "a: {b: 4, c: x}\nd: true\nn: null\nl: [1]\ni: ${a.b}\nbase: &b {e: 5}\nf:\n  <<: *b\n",
		"c.toml": "d = true\n[a]\nb = 4\nc = \"x\"\n",
		"c.json": `{"a": {"b": 4, "c": "x"}, "d": true}`,
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		got, err := Read(path, []string{"a.b", "a.c", "d", "n", "none.at.all"})
		require.NoError(t, err, name)
		require.Equal(t, map[string]any{"a.b": int64(4), "a.c": "x", "d": true}, got, name)
	}
	path := filepath.Join(dir, "c.yaml")
	merged, err := Read(path, []string{"f.e"})
	require.NoError(t, err)
	require.Equal(t, map[string]any{"f.e": int64(5)}, merged)
	_, err = Read(path, []string{"l"})
	require.ErrorContains(t, err, "not a single value")
	_, err = Read(path, []string{"i"})
	require.ErrorContains(t, err, "another key decides")
}
