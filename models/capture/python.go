package capture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/supervisor"
	"github.com/vprof/vprof/internal/tail"
)

// program is a Python script of vprof and the way to run it. The script writes its result, or the reason for a failure,
// to the file named by --result.
type program struct {
	name, text string
	// purpose is the beginning of error messages.
	purpose string
	// python is the interpreter; empty is python3 or python in PATH.
	python string
	// files are further files for the script, by name. They are stored next to it.
	files   map[string][]byte
	stdin   io.Reader
	verbose bool
}

// run runs the script and reads its result. args returns the arguments, which may name files in the script's folder
// dir. The error is a [*RefusedError] if the user can fix the cause.
func (s *program) run(ctx context.Context, args func(dir string) []string, result any) error {
	err := s.execute(ctx, args, result)
	if refused := (*RefusedError)(nil); err == nil || errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("%s: %w", s.purpose, err)
}

func (s *program) execute(ctx context.Context, args func(dir string) []string, result any) error {
	files := map[string][]byte{s.name: []byte(s.text)}
	maps.Copy(files, s.files)
	python, dir, err := prepare(s.python, files)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path, out := filepath.Join(dir, s.name), filepath.Join(dir, "result.json")
	cmd := exec.CommandContext(ctx, python, append([]string{path, "--result", out}, args(dir)...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	var said tail.Tail
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.stdin, &said, &said
	if s.verbose {
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	}
	runtime.LockOSThread() // KillWithParent goes by it
	defer runtime.UnlockOSThread()
	supervisor.KillWithParent(cmd)
	ended := cmd.Run()
	if err := ctx.Err(); err != nil {
		return err
	}
	return readResult(out, python, ended, said.Last(), result)
}

// readResult reads the script's result. If there is none, Python exited early: the error has the reason (ended) and the
// last line of Python's output.
func readResult(path, python string, ended error, last string, result any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		if ended == nil {
			ended = errors.New("the Python script ended without a result")
		}
		return fmt.Errorf("%s: %w: %s (add --verbose to see all of its output)", python, ended, last)
	}
	refused := new(RefusedError)
	if err := errors.Join(json.Unmarshal(text, refused), json.Unmarshal(text, result)); err != nil {
		return fmt.Errorf("the result of the Python script cannot be read: %w; run the command again with --verbose",
			err)
	}
	if refused.What != "" {
		return refused
	}
	return nil
}

func findPython(python string) (string, error) {
	names := []string{"python3", "python"}
	if python != "" {
		names = []string{python}
	}
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", &RefusedError{
		What: fmt.Sprintf("there is no Python called %s", strings.Join(names, " or ")),
		Do:   "name the one that has your model and PyTorch with --python PATH",
	}
}

// prepare returns the interpreter's path, and a new folder with the given files. File names may contain slashes.
func prepare(python string, files map[string][]byte) (interpreter, dir string, err error) {
	if interpreter, err = findPython(python); err != nil {
		return "", "", err
	}
	if dir, err = supervisor.Folder("vprof-capture-"); err != nil {
		return "", "", err
	}
	for name, data := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600))
	}
	if err != nil {
		return "", "", errors.Join(err, os.RemoveAll(dir))
	}
	return interpreter, dir, nil
}
