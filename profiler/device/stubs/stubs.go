package stubs

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/ulikunitz/xz"
)

// Unpack extracts the stub libraries into a folder below cache, named after their content, unless it exists. It returns
// the folder, which has a subfolder for each major version of CUDA, 12 and 13.
func Unpack(cache string) (string, error) {
	if len(stubArchive) == 0 {
		return "", fmt.Errorf("scripts run on a simulated GPU only on Linux (x86-64 and arm64), not on %s/%s",
			runtime.GOOS, runtime.GOARCH)
	}
	sum := sha256.Sum256(stubArchive)
	dir := filepath.Join(cache, "stubs-"+hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, "unpacking")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := extract(work); err != nil {
		return "", fmt.Errorf("cannot write the stub libraries into the cache folder: %w; set XDG_CACHE_HOME to a "+
			"folder that can be written", err)
	}
	// Another process may have written the same files in the meantime.
	if err := os.Rename(work, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, nil
}

// extract extracts the archive's files into a folder.
func extract(dir string) error {
	unpacked, err := xz.NewReader(bytes.NewReader(stubArchive))
	if err != nil {
		return err
	}
	files := tar.NewReader(unpacked)
	for {
		file, err := files.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if file.Typeflag != tar.TypeReg || strings.Contains(file.Name, "..") {
			continue
		}
		if err := write(filepath.Join(dir, filepath.FromSlash(file.Name)), files); err != nil {
			return err
		}
	}
}

func write(path string, content io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
