package fakecuda

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

//go:embed driver/*.c driver/*.h
var driver embed.FS

// library builds the driver with vprof's kernels, unless it was built before. It returns the path of the library, which
// is both libcuda and libnvidia-ml.
func library(tb testing.TB) string {
	tb.Helper()
	sources, err := sources()
	if err != nil {
		tb.Fatalf("find the fake driver's sources: %v", err)
	}
	path, err := build(sources)
	if err != nil {
		tb.Fatalf("build the fake driver: %v", err)
	}
	return path
}

// sources returns the library's source files by name.
func sources() (map[string][]byte, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, from := range []struct {
		fs       fs.FS
		patterns []string
	}{
		{driver, []string{"driver/*"}},
		{os.DirFS(filepath.Join(root, "kernels", "cudac")), []string{"*.cc", "*.h", "*.cu", "*.cuh"}},
	} {
		for _, pattern := range from.patterns {
			names, err := fs.Glob(from.fs, pattern)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				if files[path.Base(name)], err = fs.ReadFile(from.fs, name); err != nil {
					return nil, err
				}
			}
		}
	}
	return files, nil
}

// moduleRoot returns the folder of go.mod; tests run in a folder below.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
}

// build builds the library under a name with the hash of its sources and the processor, so that tests of all packages
// share it and a change builds a new one.
func build(sources map[string][]byte) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.GOARCH)
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		fmt.Fprintln(sum, name)
		sum.Write(sources[name])
	}
	dir := filepath.Join(os.TempDir(),
		fmt.Sprintf("vprof-fakecuda-%d-%s", os.Getuid(), hex.EncodeToString(sum.Sum(nil))[:16]))
	path := filepath.Join(dir, "libfakecuda.so")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(dir, "build")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	for name, text := range sources {
		if err := os.WriteFile(filepath.Join(work, name), text, 0o600); err != nil {
			return "", err
		}
	}
	if err := compile(work); err != nil {
		return "", err
	}
	// Concurrent builds replace each other's file with an identical one.
	return path, os.Rename(filepath.Join(work, "libfakecuda.so"), path)
}

// compile compiles libfakecuda.so in the folder of the sources.
func compile(dir string) error {
	common := []string{"-O1", "-fPIC", "-fvisibility=hidden", "-c"}
	return errors.Join(
		command(dir, "CC", "cc", append(common, "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror"), "*.c"),
		command(dir, "CXX", "c++", append(common, "-std=c++17", "-Wno-unknown-pragmas"), "*.cc"),
		command(dir, "CXX", "c++", []string{"-shared", "-o", "libfakecuda.so", "-pthread"}, "*.o"),
	)
}

// command runs a compiler, named by an environment variable or the default, in a folder on the files that match a
// pattern.
func command(dir, variable, compiler string, args []string, pattern string) error {
	if v := os.Getenv(variable); v != "" {
		compiler = v
	}
	files, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil {
		return err
	}
	cmd := exec.Command(compiler, append(args, files...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", compiler, err, out)
	}
	return nil
}
