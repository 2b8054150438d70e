// Command pack writes files to one compressed archive, the same bytes for the same files:
//
//	pack ARCHIVE FILE...
//
// What the files have in common is stored once: modules of one source for several GPUs take a third of the bytes that
// they take alone.
package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// window is more than any archive has, so that the last file can refer to the first.
const window = 32 << 20

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: pack ARCHIVE FILE...")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// pack writes the contents of files to an archive, under the last parts of their names.
func pack(archive string, files []string) error {
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer out.Close()
	compressed, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedBestCompression),
		zstd.WithWindowSize(window), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	to := tar.NewWriter(compressed)
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		header := tar.Header{Name: filepath.Base(name), Size: int64(len(content)), Mode: 0o644, Format: tar.FormatUSTAR}
		if err := to.WriteHeader(&header); err != nil {
			return err
		}
		if _, err := to.Write(content); err != nil {
			return err
		}
	}
	return errors.Join(to.Close(), compressed.Close(), out.Close())
}
