package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forwardable returns the signals that schedulers and people send. The keys of a terminal reach the command directly.
func forwardable(foreground bool) []os.Signal {
	signals := []os.Signal{
		syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT,
		syscall.SIGWINCH,
	}
	if !foreground {
		signals = append(signals, syscall.SIGINT, syscall.SIGQUIT)
	}
	return signals
}

// adoptOrphans makes this process the parent of the command's orphaned descendants.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } // old kernels lack it

func setGroup(cmd *exec.Cmd, own bool) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = own
}

// Signal sends a signal to the command, and to its group if it has one.
func (p *Process) Signal(s os.Signal) {
	number, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	pid := p.Pid()
	if p.group {
		pid = -pid
	}
	_ = syscall.Kill(pid, number) // or it has ended
}

// awaitExit waits for a process to end, and leaves its status to the caller of Wait.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// endDescendants ends the processes that outlive the command.
func (p *Process) endDescendants() {
	for deadline, next := time.Now().Add(grace), syscall.SIGTERM; ; {
		rest := p.descendants()
		if len(rest) == 0 {
			return
		}
		if next != 0 {
			for _, pid := range rest {
				_ = syscall.Kill(pid, next)
			}
		}
		next = 0
		if time.Now().After(deadline) {
			next = syscall.SIGKILL
		}
		time.Sleep(10 * time.Millisecond)
		p.reapOthers()
	}
}

// descendants returns the living processes that the command started: its group, and processes that this process
// adopted, with their descendants. Earlier children of this process are not among them.
func (p *Process) descendants() []int {
	all := processes()
	mine := map[int]bool{}
	for _, x := range all {
		if x.pid != p.Pid() && (p.group && x.group == p.Pid() || x.parent == os.Getpid() &&
			x.started >= all[p.Pid()].started) {
			mine[x.pid] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, x := range all {
			if mine[x.parent] && !mine[x.pid] {
				mine[x.pid], grown = true, true
			}
		}
	}
	var living []int
	for pid := range mine {
		if !all[pid].zombie {
			living = append(living, pid)
		}
	}
	slices.Sort(living)
	return living
}

// reapOthers reaps adopted processes that have ended, other than the command.
func (p *Process) reapOthers() {
	all := processes()
	for pid, x := range all {
		if x.zombie && x.parent == os.Getpid() && pid != p.Pid() && x.started >= all[p.Pid()].started {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// process is a process as /proc describes it.
type process struct {
	pid, parent, group int
	zombie             bool
	started            uint64 // in ticks since the machine started
}

func processes() map[int]process {
	all := map[int]process{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return all
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			all[pid] = p
		}
	}
	return all
}

// readProcess parses /proc/PID/stat: after the name in parentheses, which may contain anything, come the state, the
// parent and the group, and as the twentieth field the start time.
func readProcess(pid int) (p process, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return p, false
	}
	rest := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(rest) < 20 {
		return p, false
	}
	p = process{pid: pid, zombie: rest[0][0] == 'Z'}
	p.parent, _ = strconv.Atoi(string(rest[1]))
	p.group, _ = strconv.Atoi(string(rest[2]))
	p.started, _ = strconv.ParseUint(string(rest[19]), 10, 64)
	return p, true
}

// hasExited reports whether no process has this ID.
func hasExited(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// KillWithParent makes the system kill a command when the thread that started it ends, so that it ends with vprof.
func KillWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
