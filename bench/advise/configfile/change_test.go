package configfile

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDiffIsUnified(t *testing.T) {
	c := Change{Path: "c.yaml", Before: []byte("a: 1\nb: 2\nc: 3"), After: []byte("a: 1\nb: 5\nc: 3")}
	require.Equal(t,
		"--- c.yaml\n+++ c.yaml\n@@ -1,3 +1,3 @@\n a: 1\n-b: 2\n+b: 5\n c: 3\n\\ No newline at end of file\n", c.Diff())
	require.Empty(t, Change{Path: "c.yaml", Before: []byte("a"), After: []byte("a")}.Diff())
}

func TestWriteChangesFilesWithBackups(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	require.NoError(t, os.WriteFile(path, []byte("n: 1 # a\n"), 0o600))
	c, err := Prepare(path, []Edit{{Path: "n", Value: int64(2)}})
	require.NoError(t, err)
	backups, err := Write(t.Context(), []Change{c})
	require.NoError(t, err)
	require.Equal(t, []string{path + ".backup"}, backups)
	_, err = Write(t.Context(), []Change{c})
	require.ErrorContains(t, err, "another process changed this file meanwhile")
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
	require.ErrorContains(t, err, "refers to another key")
}
