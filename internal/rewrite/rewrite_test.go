package rewrite

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

// untouched are the files of three before anything is done.
var untouched = map[string]string{"a": "old a", "b": "old b"}

// three returns changes of two files in a new directory, and a new file there.
func three(t *testing.T) (dir string, files []File) {
	dir = t.TempDir()
	for _, name := range []string{"a", "b"} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(untouched[name]), 0o640))
		files = append(files, File{path, []byte(untouched[name]), []byte("new " + name)})
	}
	return dir, append(files, File{filepath.Join(dir, "c"), nil, []byte("new c")})
}

// contents returns the files of a directory.
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

func TestAllAreReplacedAndBackupsNumbered(t *testing.T) {
	dir, files := three(t)
	backups, err := ReplaceFiles(t.Context(), files)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "a.backup"), filepath.Join(dir, "b.backup")}, backups)

	again := File{filepath.Join(dir, "a"), []byte("new a"), []byte("newer a")}
	same := File{filepath.Join(dir, "b"), []byte("new b"), []byte("new b")}
	backups, err = ReplaceFiles(t.Context(), []File{again, same})
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "a.backup.1")}, backups)

	require.Equal(t, map[string]string{
		"a": "newer a", "a.backup": "old a", "a.backup.1": "new a", "b": "new b", "b.backup": "old b", "c": "new c",
	}, contents(t, dir))
	info, err := os.Stat(filepath.Join(dir, "a"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o640), info.Mode().Perm())
}

func TestNothingIsTouchedIf(t *testing.T) {
	for name, c := range map[string]struct {
		before func(t *testing.T, dir string)
		want   error
		says   string
	}{
		"a file was changed meanwhile": {func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "b"), []byte("other"), 0o640))
		}, nil, "another process changed this file meanwhile"},
		"a file is gone": {func(t *testing.T, dir string) {
			require.NoError(t, os.Remove(filepath.Join(dir, "b")))
		}, fs.ErrNotExist, ""},
		"a new file is there already": {func(t *testing.T, dir string) {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "c"), []byte("other"), 0o640))
		}, nil, "another process created this file meanwhile"},
		"a file is read-only": {func(t *testing.T, dir string) {
			require.NoError(t, os.Chmod(filepath.Join(dir, "b"), 0o440))
		}, fs.ErrPermission, "b: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir, files := three(t)
			c.before(t, dir)
			was := contents(t, dir)
			_, err := ReplaceFiles(t.Context(), files)
			require.ErrorContains(t, err, c.says)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			}
			require.Equal(t, was, contents(t, dir))
		})
	}
}

func TestLinksStayLinks(t *testing.T) {
	dir, _ := three(t)
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("a", link))
	_, err := ReplaceFiles(t.Context(), []File{{link, []byte("old a"), []byte("new a")}})
	require.NoError(t, err)
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&fs.ModeSymlink)
	require.Equal(t, "new a", contents(t, dir)["a"])
}

// meddled is a disk on which something happens at every call.
type meddled struct {
	osDisk
	meddle func() error
}

func (d meddled) Stage(path string, data []byte, mode fs.FileMode) (string, error) {
	if err := d.meddle(); err != nil {
		return "", err
	}
	return d.osDisk.Stage(path, data, mode)
}

func (d meddled) Rename(from, to string) error {
	if err := d.meddle(); err != nil {
		return err
	}
	return d.osDisk.Rename(from, to)
}

func (d meddled) Link(from, to string) error {
	if err := d.meddle(); err != nil {
		return err
	}
	return d.osDisk.Link(from, to)
}

// Three files take three stagings, two backups of two calls each, and three calls to put them in place.
const calls = 10

func TestFullDiskLeavesAllAsItWas(t *testing.T) {
	for at := 1; at <= calls; at++ {
		dir, files := three(t)
		n := 0
		_, err := write(t.Context(), files, meddled{meddle: func() error {
			if n++; n == at {
				return syscall.ENOSPC
			}
			return nil
		}})
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.Equal(t, untouched, contents(t, dir), "call %d", at)
	}
}

// An interrupt comes in time for nothing, or too late for all.
func TestInterruptLeavesAllOrNothingDone(t *testing.T) {
	done := 0
	for at := 0; at <= calls; at++ {
		dir, files := three(t)
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		meddle := func() error {
			if n++; n >= at {
				cancel()
			}
			return nil
		}
		if at == 0 {
			cancel()
		}
		_, err := write(ctx, files, meddled{meddle: meddle})
		if err == nil {
			done++
			require.Equal(t, "new c", contents(t, dir)["c"])
			continue
		}
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, untouched, contents(t, dir), "call %d", at)
	}
	require.Equal(t, 3, done, "from the first file in its place on, all are done")
}

// Someone saves the file while the new ones are on their way.
func TestChangeOnTheWayIsKept(t *testing.T) {
	dir, files := three(t)
	_, err := write(t.Context(), files, meddled{meddle: func() error {
		return os.WriteFile(filepath.Join(dir, "b"), []byte("saved"), 0o640)
	}})
	require.ErrorContains(t, err, "another process changed this file meanwhile")
	require.Equal(t, map[string]string{"a": "old a", "b": "saved"}, contents(t, dir))
}

// If even restoring fails, the backup stays and the error names it.
func TestWhatCannotBeRestoredStaysInItsBackup(t *testing.T) {
	dir, files := three(t)
	n := 0
	_, err := write(t.Context(), files, meddled{meddle: func() error {
		if n++; n >= calls-1 {
			return errors.New("the disk is gone")
		}
		return nil
	}})
	require.ErrorContains(t, err, "a.backup")
	require.Equal(t, "old a", contents(t, dir)["a.backup"])
}
