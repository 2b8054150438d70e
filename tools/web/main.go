// Command web builds the page that plans in a browser, as a folder of static files for any web server.
//
//	go run ./tools/web FOLDER
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: web FOLDER")
		os.Exit(2)
	}
	scratch, err := os.MkdirTemp("", "vprof-web")
	if err == nil {
		err = errors.Join(build(".", os.Args[1], scratch), os.RemoveAll(scratch))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "web:", err)
		os.Exit(1)
	}
}

// program is the file name of the compressed WebAssembly. It has no extension for which servers add a Content-Encoding.
const program = "vprof.bin"

// site is the page's data.json.
type site struct {
	// Version identifies this build of the page, Release is the version of vprof.
	Version string `json:"version"`
	Release string `json:"release"`
	// Program is the size of the compressed program in bytes. Data are the sizes of files that requests need.
	Program int            `json:"program"`
	Data    map[string]int `json:"data"`
	Models  []model        `json:"models"`
	GPUs    []gpu          `json:"gpus"`
	// Choices are the possible values of flags.
	Choices map[string][]string `json:"choices"`
}

type model struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
}

type gpu struct {
	Name       string `json:"name"`
	Product    string `json:"product"`
	Generation string `json:"generation"`
	Memory     int64  `json:"memory"`
}

// chosen are the flags whose values the page offers.
var chosen = []string{"strategy", "amp", "quantize", "weights", "optimizer", "torch"}

// build writes the page of a checkout to a folder. scratch is for the binaries of this machine and of the browser.
func build(root, folder, scratch string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	binary := filepath.Join(scratch, "vprof")
	if err := compile(root, binary, runtime.GOOS, runtime.GOARCH); err != nil {
		return err
	}
	wasm := filepath.Join(scratch, "vprof.wasm")
	if err := compile(root, wasm, "js", "wasm"); err != nil {
		return err
	}
	files, err := sources(root)
	if err != nil {
		return err
	}
	if files[program], err = compressed(wasm); err != nil {
		return err
	}
	s, err := ask(binary)
	if err != nil {
		return err
	}
	if err := s.finish(files); err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// compile compiles the command line for an operating system and architecture.
func compile(root, to, system, architecture string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", to, "./cmd/vprof")
	cmd.Dir, cmd.Stderr = root, os.Stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+architecture)
	return cmd.Run()
}

// sources returns the page's files by path: the folder web, Go's wasm_exec.js, and the rules of cuDNN.
func sources(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	var err error
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	const script = "wasm_exec.js"
	path := filepath.Join(strings.TrimSpace(string(goroot)), "lib", "wasm", script)
	if files[script], err = os.ReadFile(path); err != nil {
		return nil, err
	}
	return files, errors.Join(
		add(files, os.DirFS(filepath.Join(root, "web")), "."),
		add(files, os.DirFS(filepath.Join(root, "profiler", "stack")), "cudnn"))
}

// add adds the files below a folder of a file system, by their paths in it.
func add(files map[string][]byte, tree fs.FS, folder string) error {
	return fs.WalkDir(tree, folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[path], err = fs.ReadFile(tree, path)
		return err
	})
}

func compressed(path string) ([]byte, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = z.Write(raw)
	err = errors.Join(err, z.Close())
	return b.Bytes(), err
}

// ask runs the binary to get the data that the page offers.
func ask(binary string) (*site, error) {
	s := &site{Choices: map[string][]string{}, Data: map[string]int{}}
	var models struct{ Models, Hub []model }
	var gpus struct {
		GPUs []struct {
			gpu
			Bytes int64 `json:"memory_bytes"`
		}
	}
	var version struct{ Version string }
	for verb, into := range map[string]any{"models": &models, "gpus": &gpus, "version": &version} {
		out, err := exec.Command(binary, verb, "--format", "json").Output()
		if err == nil {
			err = json.Unmarshal(out, into)
		}
		if err != nil {
			return nil, fmt.Errorf("vprof %s: %w", verb, err)
		}
	}
	s.Release, s.Models = version.Version, models.Models
	for _, m := range models.Hub {
		s.Models = append(s.Models, model{"hf:" + m.Name, "model of the Hugging Face hub"})
	}
	for _, g := range gpus.GPUs {
		g.Memory = g.Bytes
		s.GPUs = append(s.GPUs, g.gpu)
	}
	slices.SortStableFunc(s.GPUs, func(a, b gpu) int { return int(a.Memory>>20 - b.Memory>>20) })
	for _, flag := range chosen {
		out, err := exec.Command(binary, "__complete", "plan", "--"+flag, "").Output()
		if err != nil {
			return nil, fmt.Errorf("values of --%s: %w", flag, err)
		}
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		s.Choices[flag] = lines[:len(lines)-1] // the last line is a directive for the shell
	}
	return s, nil
}

// finish adds data.json, and the service worker's list of files to cache.
func (s *site) finish(files map[string][]byte) error {
	s.Program = len(files[program])
	sum := sha256.New()
	shell, data := []string{"./", "data.json"}, []string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		sum.Write(files[name])
		switch {
		case strings.HasPrefix(name, "cudnn/"):
			s.Data[name] = len(files[name])
			data = append(data, name)
		case name != "sw.js":
			shell = append(shell, name)
		}
	}
	s.Version = fmt.Sprintf("vprof-%x", sum.Sum(nil)[:6])
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	files["data.json"] = text
	head, err := json.Marshal([]any{s.Version, shell, data})
	if err != nil {
		return err
	}
	files["sw.js"] = append([]byte("const [VERSION, SHELL, DATA] = "+string(head)+";\n"), files["sw.js"]...)
	return nil
}
