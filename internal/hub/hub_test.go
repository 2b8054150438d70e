package hub

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFilesAreFoundWhereClientsKeepThem(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	for _, name := range []string{
		"HUGGINGFACE_HUB_CACHE", "HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME",
		"MODELSCOPE_CACHE",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", home)
	for _, p := range []string{
		"home/.cache/huggingface/hub/models--x--y/refs/main",
		"home/.cache/huggingface/hub/models--x--y/snapshots/c0ffee/config.json",
		"home/.cache/huggingface/hub/models--x--y/snapshots/v2/config.json",
		"home/.cache/modelscope/hub/models/m/n___5/config.json", "own/models--z/snapshots/main/config.json",
	} {
		path := filepath.Join(dir, p)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte("c0ffee\n"), 0o600))
	}
	require.Equal(t, filepath.Join(home, ".cache/huggingface/hub/models--x--y/snapshots/c0ffee/config.json"),
		CachedFile("x/y", "", "config.json"))
	require.Equal(t, filepath.Join(home, ".cache/huggingface/hub/models--x--y/snapshots/v2/config.json"),
		CachedFile("x/y", "v2", "config.json"))
	require.Equal(t, filepath.Join(home, ".cache/modelscope/hub/models/m/n___5/config.json"),
		CachedFile("m/n.5", "", "config.json"))
	require.Empty(t, CachedFile("x/y", "../../..", "config.json"))
	require.Empty(t, CachedFile("x/y", "", "other.json"))
	t.Setenv("HF_HUB_CACHE", filepath.Join(dir, "own"))
	require.Equal(t, filepath.Join(dir, "own/models--z/snapshots/main/config.json"), CachedFile("z", "", "config.json"))
	require.Empty(t, CachedFile("x/y", "", "config.json"))
}
