//go:build unix

package rewrite

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// killed is a disk on which the process ends at a call, as with SIGKILL.
type killed struct {
	osDisk
	left *int
}

func (d killed) step() {
	if *d.left--; *d.left == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (d killed) Stage(path string, data []byte, mode fs.FileMode) (string, error) {
	d.step()
	return d.osDisk.Stage(path, data, mode)
}

func (d killed) Overwrite(path string, data []byte) error {
	d.step()
	return d.osDisk.Overwrite(path, data)
}

func (d killed) Rename(from, to string) error { d.step(); return d.osDisk.Rename(from, to) }

func (d killed) Link(from, to string) error { d.step(); return d.osDisk.Link(from, to) }

func (d killed) Remove(path string) error { d.step(); return d.osDisk.Remove(path) }

// in returns the changes of [three] in two directories that are there; of b there is another name.
func in(dir string) []File {
	return []File{
		{filepath.Join(dir, "a"), []byte("old a"), []byte("new a")},
		{filepath.Join(dir, "b"), []byte("old b"), []byte("new b, longer")},
		{filepath.Join(dir, "sub", "c"), nil, []byte("new c")},
	}
}

// TestMain is the process that is killed, if it is told at which call.
func TestMain(m *testing.M) {
	at, err := strconv.Atoi(os.Getenv("REWRITE_KILLED_AT"))
	if err != nil {
		os.Exit(m.Run())
	}
	dir := os.Getenv("REWRITE_DIR")
	if _, err := write(context.Background(), in(dir), killed{left: &at}); err != nil {
		os.Exit(1)
	}
}

// Wherever a process is killed, each file holds its old or its new content, whole, and where one is new all old
// contents are in backups.
func TestKilledProcessLeavesWholeFilesAndBackups(t *testing.T) {
	ended := false
	for at := 1; !ended; at++ {
		dir := t.TempDir()
		require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("old a"), 0o640))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "b"), []byte("old b"), 0o640))
		require.NoError(t, os.Link(filepath.Join(dir, "b"), filepath.Join(dir, "sub", "also-b")))
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "REWRITE_KILLED_AT="+strconv.Itoa(at), "REWRITE_DIR="+dir)
		err := cmd.Run()
		ended = err == nil
		if !ended {
			require.False(t, cmd.ProcessState.Exited(), "it is killed at call %d: %v", at, err)
		}
		read := func(name string) string {
			data, _ := os.ReadFile(filepath.Join(dir, name))
			return string(data)
		}
		a, b, c := read("a"), read("b"), read("sub/c")
		require.Contains(t, []string{"old a", "new a"}, a, "call %d", at)
		require.Contains(t, []string{"old b", "new b, longer"}, b, "call %d", at)
		require.Contains(t, []string{"", "new c"}, c, "call %d", at)
		require.Equal(t, b, read("sub/also-b"), "call %d", at)
		if a == "new a" || b == "new b, longer" || c == "new c" {
			require.Equal(t, "old a", read("a.backup"))
			require.Equal(t, "old b", read("b.backup"))
		}
		if ended {
			require.Equal(t, [3]string{"new a", "new b, longer", "new c"}, [3]string{a, b, c})
		}
	}
}

// Writers add to a file one after another; none is lost.
func TestUpdatesWaitForEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			_, err := Update(t.Context(), path, func(before []byte) ([]byte, error) { return append(before, 'x'), nil })
			require.NoError(t, err)
		})
	}
	all.Wait()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "xxxxxxxx", string(data))
}
