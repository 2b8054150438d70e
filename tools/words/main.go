// Command words checks the English of comments, messages and documents:
//
//	go run ./tools/words [FILE or FOLDER ...]
//
// Two rules hold. The comment of a function begins with its name and a verb ("Peak returns the bytes at ..."),
// so that a reader learns first what a call does. And no text uses a phrase of the table in phrases.go, which a
// stranger cannot decode or which has a word in the field. Without arguments it checks all tracked files.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	files, err := tracked(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "words:", err)
		os.Exit(2)
	}
	out := bufio.NewWriter(os.Stdout)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintln(os.Stderr, "words:", err)
			os.Exit(2)
		}
		for _, f := range check(file, text) {
			fmt.Fprintln(out, f)
			found++
		}
	}
	_ = out.Flush()
	if found > 0 {
		fmt.Fprintf(os.Stderr, "words: %d findings\n", found)
		os.Exit(1)
	}
}

// tracked returns the files to check among the ones that git tracks below the paths, or below the working folder if
// there are no paths.
func tracked(paths []string) ([]string, error) {
	out, err := exec.Command("git", append([]string{"ls-files", "-z", "--"}, paths...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	files := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	return slices.DeleteFunc(files, func(file string) bool {
		_, err := os.Stat(file)
		return err != nil || !isChecked(file)
	}), nil
}

// isChecked reports whether a file holds prose of ours: code, help pages and documents, no recorded data.
func isChecked(file string) bool {
	if strings.Contains(file, "testdata/") && filepath.Ext(file) != ".txtar" ||
		strings.HasPrefix(file, "bench/reference/data") ||
		slices.Contains(exceptions, file) {
		return false
	}
	prose := []string{".go", ".md", ".txt", ".txtar", ".py", ".c", ".h", ".tmpl", ".js", ".css"}
	return slices.Contains(prose, filepath.Ext(file))
}
