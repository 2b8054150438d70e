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
	if *d.left == 2 { // in the middle of it
		data = data[:len(data)/2]
	}
	d.step()
	err := d.osDisk.Overwrite(path, data)
	d.step()
	return err
}

func (d killed) Begin(j *journal) error { d.step(); return d.osDisk.Begin(j) }

func (d killed) End(j *journal) error { d.step(); return d.osDisk.End(j) }

func (d killed) Sync(dir string) error { d.step(); return d.osDisk.Sync(dir) }

func (d killed) Rename(from, to string) error { d.step(); return d.osDisk.Rename(from, to) }

func (d killed) Link(from, to string) error { d.step(); return d.osDisk.Link(from, to) }

func (d killed) Remove(path string) error { d.step(); return d.osDisk.Remove(path) }

// in returns the changes of [three] in two directories that are there; of b there is
// another name.
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

// Wherever a process is killed, afterwards all files hold what they held or all
// hold the new, links and all, and nothing else lies about but backups.
func TestKilledProcessLeavesAllOrNothing(t *testing.T) {
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
		require.NoError(t, Recover(filepath.Join(dir, "sub", "c")))
		require.NoError(t, Recover(filepath.Join(dir, "a")))
		read := func(name string) string {
			data, _ := os.ReadFile(filepath.Join(dir, name))
			return string(data)
		}
		got := [4]string{read("a"), read("b"), read("sub/c"), read("sub/also-b")}
		require.Contains(t, [][4]string{
			{"old a", "old b", "", "old b"},
			{"new a", "new b, longer", "new c", "new b, longer"},
		}, got, "call %d", at)
		require.NoFileExists(t, filepath.Join(dir, journalName))
		require.NoFileExists(t, filepath.Join(dir, "sub", journalName))
		if got[0] == "new a" {
			require.Equal(t, "old a", read("a.backup"))
			require.Equal(t, "old b", read("b.backup"))
		}
	}
}

// A journal of a stranger's says what to do in its own directory alone.
func TestJournalReachesNoOtherDirectory(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	victim, evil := filepath.Join(other, "keys"), filepath.Join(dir, "evil")
	require.NoError(t, os.WriteFile(victim, []byte("mine"), 0o600))
	require.NoError(t, os.WriteFile(evil, []byte("theirs"), 0o600))
	j := &journal{Dirs: []string{dir, other}, Files: []journalEntry{
		{Path: victim, Staged: evil, Backup: evil, Before: digest([]byte("theirs")), After: digest([]byte("mine"))},
		{Path: victim, Staged: victim, After: digest([]byte("mine"))},
	}}
	require.NoError(t, osDisk{}.Begin(j))
	require.NoError(t, os.Remove(filepath.Join(other, journalName)))
	require.NoError(t, Recover(filepath.Join(dir, "x")))
	data, err := os.ReadFile(victim)
	require.NoError(t, err)
	require.Equal(t, "mine", string(data))
	require.NoFileExists(t, filepath.Join(dir, journalName))
}

// What somebody wrote after the process was killed is not overwritten.
func TestWorkAfterTheKillIsKept(t *testing.T) {
	dir, files := three(t)
	targets, err := openAll(files[:1])
	require.NoError(t, err)
	targets[0].staged, targets[0].backup = files[0].Path+".staged", files[0].Path+".backup"
	require.NoError(t, os.WriteFile(targets[0].backup, []byte("old a"), 0o640))
	require.NoError(t, osDisk{}.Begin(journalOf(targets)))
	require.NoError(t, os.WriteFile(files[0].Path, []byte("mine"), 0o640))
	_, err = Files(t.Context(), []File{{files[1].Path, files[1].Before, files[1].After}})
	require.ErrorContains(t, err, "was killed, and the file was changed since")
	require.Equal(t, "mine", contents(t, dir)["a"])
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
