// Package supervisor runs a command for a scheduler so that the supervisor is not noticed: it forwards signals at once
// and exits with the command's exit code. No process that the command started outlives it.
package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// A Process is a running command.
type Process struct {
	cmd *exec.Cmd
	// group reports whether the command has a process group of its own.
	group     bool
	forwarded atomic.Bool
	done      chan struct{}
	err       error
}

// grace is how long descendants that outlive a command get between SIGTERM and SIGKILL.
const grace = 5 * time.Second

// Start starts a command. In the foreground of a terminal it stays in the terminal's process group, which receives the
// terminal's keys; otherwise it gets its own group.
func Start(cmd *exec.Cmd, foreground bool) (*Process, error) {
	p := &Process{cmd: cmd, group: !foreground, done: make(chan struct{})}
	// Signals must be caught before there is a process to forward them to.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, forwardable(foreground)...)
	adoptOrphans()
	setGroup(cmd, p.group)
	if err := cmd.Start(); err != nil {
		signal.Stop(signals)
		return nil, err
	}
	go p.forward(signals)
	go func() {
		awaitExit(cmd.Process.Pid)
		p.endDescendants()
		p.err = cmd.Wait()
		signal.Stop(signals)
		close(p.done)
	}()
	return p, nil
}

func (p *Process) forward(signals <-chan os.Signal) {
	for {
		select {
		case s := <-signals:
			p.forwarded.Store(true)
			p.Signal(s)
		case <-p.done:
			return
		}
	}
}

// Pid returns the command's process ID.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done returns a channel that is closed when the command and its descendants have ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns the result of [exec.Cmd.Wait]; it is valid after Done.
func (p *Process) Err() error { return p.err }

// Forwarded reports whether a signal was forwarded to the command.
func (p *Process) Forwarded() bool { return p.forwarded.Load() }

// End interrupts the command, and kills it if it has not ended after patience.
func (p *Process) End(patience time.Duration) {
	p.Signal(os.Interrupt)
	select {
	case <-p.done:
	case <-time.After(patience):
		p.Signal(syscall.SIGKILL)
		<-p.done
	}
}

// ExitCode returns a command's exit code by a shell's rules: its own code, or 128 plus the signal that ended it.
func ExitCode(err *exec.ExitError) int {
	if s, ok := err.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return err.ExitCode()
}

// Folder makes a folder for temporary files, whose name begins with a prefix and the number of this process. It removes
// the folders of that prefix whose processes were killed.
func Folder(prefix string) (string, error) {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*")) // the error is about the pattern
	for _, dir := range found {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		pid, err := strconv.Atoi(number)
		if err == nil && pid > 0 && hasExited(pid) {
			_ = os.RemoveAll(dir) // what cannot be removed is another user's
		}
	}
	return os.MkdirTemp("", fmt.Sprintf("%s%d-", prefix, os.Getpid()))
}
