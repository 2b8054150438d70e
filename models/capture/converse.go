package capture

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/vprof/vprof/internal/supervisor"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

// A Conversation is a running Python process that asks cuDNN one question after the other. Close ends the process.
type Conversation struct {
	// Version is the version of cuDNN that answers, as "9.19".
	Version string

	mu      sync.Mutex
	cmd     *exec.Cmd
	dir     string
	to      io.WriteCloser
	answers *bufio.Scanner
}

// Converse starts a conversation with cuDNN about a [cudnn.Generation]. The error says why no cuDNN is available.
func (a Asking) Converse(ctx context.Context, generation int) (*Conversation, error) {
	files, err := askFiles(generation)
	if err != nil {
		return nil, err
	}
	files["vprof_ask.py"] = []byte(AskScript)
	python, dir, err := prepare(a.Python, files)
	if err != nil {
		return nil, err
	}
	args := []string{filepath.Join(dir, "vprof_ask.py"), "--converse", "--result", filepath.Join(dir, "result.json")}
	c := &Conversation{dir: dir, cmd: exec.CommandContext(ctx, python, append(args, a.args(dir, generation)...)...)}
	c.cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES=")
	supervisor.KillWithParent(c.cmd)
	if err := c.start(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// start starts Python and reads the version of its cuDNN.
func (c *Conversation) start() (err error) {
	if c.to, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	c.answers = bufio.NewScanner(out)
	if !c.answers.Scan() {
		return fmt.Errorf("%s has no cuDNN; name a Python with PyTorch for CUDA with --python", c.cmd.Path)
	}
	c.Version = strings.TrimSpace(c.answers.Text())
	return nil
}

// AskLine returns the workspace bytes for a line of the script's text format, which may also describe other graphs than
// a convolution.
func (c *Conversation) AskLine(q string) (bytes int64, err error) {
	err = c.ask(q, &bytes)
	return bytes, err
}

// An Engine is one of cuDNN's implementations of a convolution.
type Engine struct {
	// Workspace is the size of the engine's workspace in bytes.
	Workspace int64
	// Notes are the engine's numerical notes, as values of cudnnBackendNumericalNote_t.
	Notes []int
}

// UnmarshalJSON reads an engine from a list: the workspace and the notes.
func (e *Engine) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&e.Workspace, &e.Notes})
}

// Engines returns all of cuDNN's engines for a convolution in the order of its heuristics: the proposed ones, and the
// fallbacks, which PyTorch tries if none of the proposed ones runs.
func (c *Conversation) Engines(q query.Question) (proposed, fallbacks []Engine, err error) {
	err = c.ask("all "+q.String(), &[]*[]Engine{&proposed, &fallbacks})
	return proposed, fallbacks, err
}

// Notes returns the numerical notes of the engine whose workspace Ask returns.
func (c *Conversation) Notes(q query.Question) (notes []int, err error) {
	err = c.ask("notes "+q.String(), &notes)
	return notes, err
}

// ask sends a line to the Python process and decodes its JSON answer.
func (c *Conversation) ask(q string, answer any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := io.WriteString(c.to, q+"\n"); err != nil {
		return err
	}
	if !c.answers.Scan() {
		return fmt.Errorf("cuDNN of this Python ended before it answered about the convolution %q; run the command "+
			"again", q)
	}
	return json.Unmarshal(c.answers.Bytes(), answer)
}

// Close ends the Python process.
func (c *Conversation) Close() {
	if c.to != nil {
		_ = c.to.Close() // Python ends then
	}
	if c.cmd != nil && c.cmd.Process != nil {
		_ = c.cmd.Wait() // its answers are known
	}
	_ = os.RemoveAll(c.dir)
}
