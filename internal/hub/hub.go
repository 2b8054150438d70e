// Package hub finds the repositories that clients of Hugging Face's hub and ModelScope's have
// put into their caches on this machine. Nothing is downloaded.
package hub

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
)

// Snapshots returns the folders of the caches that can hold a repository ("org/name") at a
// revision; empty is "main". They need not be there.
func Snapshots(name, revision string) []string {
	home, _ := os.UserHomeDir()
	cache := cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(home, ".cache"))
	hub := cmp.Or(os.Getenv("HF_HUB_CACHE"), os.Getenv("HUGGINGFACE_HUB_CACHE"),
		filepath.Join(cmp.Or(os.Getenv("HF_HOME"), filepath.Join(cache, "huggingface")), "hub"))
	repository := filepath.Join(hub, "models--"+strings.ReplaceAll(name, "/", "--"))
	revision = cmp.Or(revision, "main")
	var dirs []string
	if !strings.Contains(revision, "..") {
		if commit, err := os.ReadFile(filepath.Join(repository, "refs", filepath.FromSlash(revision))); err == nil &&
			len(commit) < 256 {
			dirs = append(dirs, filepath.Join(repository, "snapshots", strings.TrimSpace(string(commit))))
		}
		dirs = append(dirs, filepath.Join(repository, "snapshots", revision))
	}
	scope := cmp.Or(os.Getenv("MODELSCOPE_CACHE"), filepath.Join(cache, "modelscope", "hub"))
	for _, n := range []string{name, strings.ReplaceAll(name, ".", "___")} {
		dirs = append(dirs, filepath.Join(scope, "models", filepath.FromSlash(n)),
			filepath.Join(scope, filepath.FromSlash(n)))
	}
	return dirs
}

// File returns a file of a repository in the caches; empty if none has it.
func File(name, revision, file string) string {
	for _, dir := range Snapshots(name, revision) {
		path := filepath.Join(dir, file)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
