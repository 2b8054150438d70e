// Package hub finds repositories in the caches that clients of Hugging Face's hub and ModelScope's have on this
// machine, and fetches descriptions of models into the first.
package hub

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
)

// Snapshots returns the folders of the caches that can hold a repository ("org/name") at a revision; empty is "main".
// The folders may not exist.
func Snapshots(name, revision string) []string {
	repository := filepath.Join(cacheFolder(), "models--"+strings.ReplaceAll(name, "/", "--"))
	revision = cmp.Or(revision, "main")
	var dirs []string
	if !strings.Contains(revision, "..") {
		if commit, err := os.ReadFile(filepath.Join(repository, "refs", filepath.FromSlash(revision))); err == nil &&
			len(commit) < 256 {
			dirs = append(dirs, filepath.Join(repository, "snapshots", strings.TrimSpace(string(commit))))
		}
		dirs = append(dirs, filepath.Join(repository, "snapshots", revision))
	}
	scope := cmp.Or(os.Getenv("MODELSCOPE_CACHE"), filepath.Join(hubCacheFolder(), "modelscope", "hub"))
	for _, n := range []string{name, strings.ReplaceAll(name, ".", "___")} {
		dirs = append(dirs, filepath.Join(scope, "models", filepath.FromSlash(n)),
			filepath.Join(scope, filepath.FromSlash(n)))
	}
	return dirs
}

// hubCacheFolder returns the folder of the user's caches on Linux, which both clients use.
func hubCacheFolder() string {
	home, _ := os.UserHomeDir()
	return cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(home, ".cache"))
}

// hubFolder returns the folder of huggingface_hub's files.
func hubFolder() string {
	return cmp.Or(os.Getenv("HF_HOME"), filepath.Join(hubCacheFolder(), "huggingface"))
}

// cacheFolder returns the folder of huggingface_hub's cache.
func cacheFolder() string {
	return cmp.Or(os.Getenv("HF_HUB_CACHE"), os.Getenv("HUGGINGFACE_HUB_CACHE"), filepath.Join(hubFolder(), "hub"))
}

// CachedFile returns the path of a repository's file in the caches; empty if none has it.
func CachedFile(name, revision, file string) string {
	for _, dir := range Snapshots(name, revision) {
		path := filepath.Join(dir, file)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
