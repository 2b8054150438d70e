//go:build slurm && linux

package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cluster is Slurm as it is packaged, with several nodes on this machine. The test must be root's.
type cluster struct {
	t     *testing.T
	dir   string
	nodes []string
	// daemons are the processes by name.
	daemons map[string]*exec.Cmd
}

// startCluster starts a node, and a partition of its name, for each GPU.
func startCluster(t *testing.T, gpus []string) *cluster {
	c := &cluster{t: t, dir: t.TempDir(), nodes: gpus, daemons: map[string]*exec.Cmd{}}
	host, err := os.Hostname()
	require.NoError(t, err)
	startMunge(t)
	require.NoError(t, os.MkdirAll(filepath.Join(c.dir, "ctld"), 0o755))
	conf := fmt.Sprintf(`ClusterName=vprof
SlurmctldHost=%[1]s(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SlurmctldPort=16817
SlurmctldPidFile=%[2]s/ctld.pid
SlurmdPidFile=%[2]s/d.%%n.pid
SlurmdSpoolDir=%[2]s/d.%%n
StateSaveLocation=%[2]s/ctld
SlurmctldLogFile=%[2]s/ctld.log
SlurmdLogFile=%[2]s/d.%%n.log
SlurmdTimeout=5
SwitchType=switch/none
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,requeue_setup_env_fail
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
`, host, c.dir)
	gres := ""
	for i, n := range c.nodes {
		require.NoError(t, os.MkdirAll(filepath.Join(c.dir, "d."+n), 0o755))
		conf += fmt.Sprintf("NodeName=%s NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=1 RealMemory=1000 "+
			"Gres=gpu:%s:1 State=UNKNOWN\n", n, host, 16831+i, n)
		conf += fmt.Sprintf("PartitionName=%s Nodes=%s MaxTime=INFINITE State=UP\n", n, n)
		gres += fmt.Sprintf("NodeName=%s Name=gpu Type=%s File=%s\n", n, n,
			[]string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random"}[i%4])
	}
	c.write("slurm.conf", conf)
	c.write("gres.conf", gres)
	t.Setenv("SLURM_CONF", filepath.Join(c.dir, "slurm.conf"))
	c.start("slurmctld", "slurmctld", "-D")
	for _, n := range c.nodes {
		c.startNode(n)
	}
	t.Cleanup(func() {
		for _, d := range c.daemons {
			_ = d.Process.Signal(syscall.SIGTERM)
			_ = d.Wait()
		}
	})
	require.Eventually(t, func() bool {
		out, err := exec.Command("sinfo", "--noheader", "--Node", "--format=%T").Output()
		return err == nil && strings.Count(string(out), "idle") == len(c.nodes)
	}, 60*time.Second, 500*time.Millisecond, "the nodes are not idle")
	return c
}

func (c *cluster) write(name, text string) {
	require.NoError(c.t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o644))
}

func (c *cluster) start(name, program string, args ...string) {
	cmd := exec.Command(program, append(args, "-f", filepath.Join(c.dir, "slurm.conf"))...)
	require.NoError(c.t, cmd.Start())
	c.daemons[name] = cmd
}

func (c *cluster) startNode(n string) { c.start(n, "slurmd", "-D", "-N", n) }

// killNode stops a node's daemon for good, and what runs there.
func (c *cluster) killNode(n string, tasks []int) {
	require.NoError(c.t, c.daemons[n].Process.Kill())
	_ = c.daemons[n].Wait()
	delete(c.daemons, n)
	for _, pid := range tasks {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// startMunge starts the daemon that Slurm signs messages by, unless it runs.
func startMunge(t *testing.T) {
	if exec.Command("munge", "-n").Run() == nil {
		return
	}
	u, err := user.Lookup("munge")
	require.NoError(t, err)
	uid, err := strconv.Atoi(u.Uid)
	require.NoError(t, err)
	gid, err := strconv.Atoi(u.Gid)
	require.NoError(t, err)
	for _, dir := range []string{"/run/munge", "/var/log/munge", "/var/lib/munge"} {
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.Chown(dir, uid, gid))
	}
	munged := exec.Command("munged", "--foreground", "--force")
	munged.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	require.NoError(t, munged.Start())
	t.Cleanup(func() { _ = munged.Process.Kill(); _ = munged.Wait() })
	require.Eventually(t, func() bool {
		return exec.Command("munge", "-n").Run() == nil
	}, 10*time.Second, 200*time.Millisecond)
}
