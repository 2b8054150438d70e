package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A secret is a kind of data that archives must not contain: its description, a pattern that finds it, and its
// replacement.
type secret struct {
	what    string
	pattern *regexp.Regexp
	instead string
}

// secrets returns the secrets of every machine, and this machine's names.
func secrets() []secret {
	all := []secret{
		{"UUIDs of GPUs", regexp.MustCompile(`\b(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "$1-removed"},
		{
			"serial and part numbers", regexp.MustCompile(`(?mi)^(.*\b(?:serial|part) number\s*:\s*)\S.*$`),
			"${1}removed",
		},
		{"names of hosts", regexp.MustCompile(`("host":\s*")[^"]+"`), `${1}removed"`},
		{"processes on GPUs", regexp.MustCompile(`\bused by [^\n"]+? \(\d+\)`), "used by a process"},
		{"processes in the kernel log", regexp.MustCompile(`\bpid='?[^,\s]+'?(, name=[^,\n"]*)?`), "a process"},
	}
	named := func(what, text, instead string) {
		if len(text) > 1 {
			all = append(all, secret{
				what, regexp.MustCompile(`(^|[^\w])` + regexp.QuoteMeta(text) + `\b`),
				"${1}" + instead,
			})
		}
	}
	host, _ := os.Hostname() // without a host name there is nothing to remove
	named("names of hosts", host, "HOST")
	if short, _, dotted := strings.Cut(host, "."); dotted {
		named("names of hosts", short, "HOST")
	}
	home, _ := os.UserHomeDir()
	named("folders of people", home, "HOME")
	user := cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME"))
	if user != "root" {
		named("names of people", user, "USER")
	}
	return all
}

// processes is the heading of nvidia-smi's list of processes, whose lines are indented.
const processes = "Processes"

// withoutProcesses removes such lists from a text and returns how many there were.
func withoutProcesses(text string) (rest string, left int) {
	var b strings.Builder
	inside := -1 // indentation of the heading; -1 outside of a list
	for line := range strings.Lines(text) {
		in := len(line) - len(strings.TrimLeft(line, " "))
		if inside >= 0 && in > inside {
			continue
		}
		inside = -1
		if heading, _, _ := strings.Cut(strings.TrimSpace(line), " "); heading == processes && in > 0 {
			inside = in
			left++
			continue
		}
		b.WriteString(line)
	}
	return b.String(), left
}

// texts are the extensions of files in an archive. Captured models are left out, since they may contain anything.
var texts = []string{".txt", ".json", ".jsonl", ".md", ".yaml"}

// pack writes FOLDER.tar.gz: the folder's text files without secrets, and OMITTED.txt with what was removed.
func pack(folder string) (string, error) {
	left := map[string]int{}
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	to := tar.NewWriter(zipped)
	add := func(name, text string) error {
		name = filepath.ToSlash(filepath.Join(filepath.Base(folder), name))
		err := to.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))})
		if err == nil {
			_, err = to.Write([]byte(text))
		}
		return err
	}
	all := secrets()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		if !slices.Contains(texts, filepath.Ext(name)) {
			left["file "+filepath.ToSlash(name)]++
			return nil
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return add(name, redacted(string(raw), all, left))
	})
	if err == nil {
		err = add("OMITTED.txt", omitted(left))
	}
	if err = errors.Join(err, to.Close(), zipped.Close()); err != nil {
		return "", err
	}
	archive := filepath.Clean(folder) + ".tar.gz"
	return archive, os.WriteFile(archive, out.Bytes(), 0o644)
}

// redacted returns a text without secrets, and adds the number of removed ones to left.
func redacted(text string, all []secret, left map[string]int) string {
	text, lists := withoutProcesses(text)
	if lists > 0 {
		left["processes on GPUs"] += lists
	}
	for _, s := range all {
		if n := len(s.pattern.FindAllStringIndex(text, -1)); n > 0 {
			left[s.what] += n
			text = s.pattern.ReplaceAllString(text, s.instead)
		}
	}
	return text
}

// omitted describes what was removed, and how often.
func omitted(left map[string]int) string {
	var lines []string
	for what, n := range left {
		lines = append(lines, fmt.Sprintf("%s: %d\n", what, n))
	}
	slices.Sort(lines)
	return "Left out of the files beside this one:\n\n" + strings.Join(lines, "")
}
