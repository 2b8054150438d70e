package fakecuda

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vprof/vprof/profiler/device"
)

//go:embed driver/*.c driver/*.h
var sources embed.FS

// Library builds the driver, unless that was done before, and returns the path
// of the one file that is both libcuda and libnvidia-ml.
func Library(tb testing.TB) string {
	tb.Helper()
	path, err := build()
	if err != nil {
		tb.Fatalf("build the fake driver: %v", err)
	}
	return path
}

// build keeps the library under a name made of its sources, so that tests of
// all packages share it and a change makes a new one.
func build() (string, error) {
	files, err := fs.Glob(sources, "driver/*")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range files {
		text, err := sources.ReadFile(name)
		if err != nil {
			return "", err
		}
		sum.Write(text)
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("vprof-fakecuda-%d-%s", os.Getuid(), hex.EncodeToString(sum.Sum(nil))[:16]))
	path := filepath.Join(dir, "libfakecuda.so")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(dir, "build")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := os.CopyFS(work, sources); err != nil {
		return "", err
	}
	made := filepath.Join(work, "libfakecuda.so")
	if err := compile(made, filepath.Join(work, "driver")); err != nil {
		return "", err
	}
	// Whoever is last replaces the same with the same.
	return path, os.Rename(made, path)
}

func compile(to, dir string) error {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	parts, err := filepath.Glob(filepath.Join(dir, "*.c"))
	if err != nil {
		return err
	}
	args := []string{"-std=gnu11", "-O1", "-g", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror", "-o", to}
	out, err := exec.Command(cc, append(append(args, parts...), "-lpthread")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", cc, err, out)
	}
	return nil
}

// A Setup is a machine with a driver.
type Setup struct {
	Boards []Board
	// Fail lists calls that fail: see [FailNth] and [FailCall].
	Fail []string
	// Version is that of CUDA times 1000; zero is 13.0.
	Version int
	// NVML is what nvmlInit returns: zero works, 9 is a driver not loaded.
	NVML int
	// Backed gives device memory host memory.
	Backed bool
}

// A Board is one of the GPUs.
type Board struct {
	device.GPU
	// Mode is the compute mode: 0 default, 2 prohibited, 3 exclusive.
	Mode int
	// MIG makes it a slice of a board.
	MIG bool
	// Module is what loading a module takes, bytes.
	Module int64
	Others []Process
}

// A Process is another one that uses a board.
type Process struct {
	PID  int
	Name string
	Used int64
}

// FailNth has the nth call of the driver, counted from 1, return a CUresult.
func FailNth(n, result int) string { return fmt.Sprintf("%d:%d", n, result) }

// FailCall has the nth call of a name, as in "cuMemAlloc", return a CUresult.
func FailCall(name string, n, result int) string { return fmt.Sprintf("%s:%d:%d", name, n, result) }

// Simulated is a machine with one board of the catalog.
func Simulated(gpu device.GPU) Setup { return Setup{Boards: []Board{{GPU: gpu}}} }

// A Driver is a setup in the environment of a test or of its children.
type Driver struct {
	// Env are the variables, KEY=VALUE.
	Env []string
	// stats and log are the files that the driver writes.
	stats, log string
}

// Driver builds the library and puts the setup into an environment.
func (s Setup) Driver(tb testing.TB) *Driver {
	tb.Helper()
	library, dir := Library(tb), tb.TempDir()
	d := &Driver{stats: filepath.Join(dir, "stats"), log: filepath.Join(dir, "log")}
	set := func(key, value string) { d.Env = append(d.Env, key+"="+value) }
	var boards []string
	for _, b := range s.Boards {
		boards = append(boards, b.String())
	}
	set("VPROF_LIBCUDA", library)
	set("VPROF_LIBNVML", library)
	set("FAKECUDA", strings.Join(boards, ";"))
	set("FAKECUDA_STATS", d.stats)
	set("FAKECUDA_LOG", d.log)
	set("FAKECUDA_FAIL", strings.Join(s.Fail, ","))
	set("FAKECUDA_VERSION", number(s.Version))
	set("FAKENVML_FAIL", number(s.NVML))
	set("FAKECUDA_BACKED", "")
	if s.Backed {
		set("FAKECUDA_BACKED", "1")
	}
	return d
}

// number is n, or nothing where zero stands for the default.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// String is the board as the driver reads it.
func (b Board) String() string {
	text := fmt.Sprintf("name=%s,cc=%d,sms=%d,threads=%d,memory=%d,context=%d,module=%d,mode=%d",
		b.Product, int(b.Capability), b.SMs, b.ThreadsPerSM, b.Memory, b.Context, b.Module, b.Mode)
	if b.MIG {
		text += ",mig=1"
	}
	for _, p := range b.Others {
		text += fmt.Sprintf(",other=%d:%s:%d", p.PID, p.Name, p.Used)
	}
	return text
}

// Stats are the counts of a driver: the structure in fake.h.
type Stats struct {
	// Calls of the driver, Injected failures of them, and Violations of the
	// interface's rules.
	Calls, Injected, Violations uint64
	// Used is the bytes of the boards held by the process, Peak the highest
	// that it was.
	Used, Peak uint64
	// What is alive.
	Contexts, Segments, Ranges, Mappings, Handles, Modules, Streams, Events uint64
	// Reclaimed things were still alive when their context ended.
	Reclaimed uint64
	Launches  uint64
	// Nanoseconds of the device's clock.
	Nanoseconds uint64
	// NVML is nvmlInit without nvmlShutdown.
	NVML uint64
}

// Alive is how many things the process still has from the driver.
func (s Stats) Alive() uint64 {
	return s.Contexts + s.Segments + s.Ranges + s.Mappings + s.Handles + s.Modules + s.Streams + s.Events
}

// Stats reads the counts. They are up to date, however a process ended; zero
// if it never loaded the driver.
func (d *Driver) Stats(tb testing.TB) Stats {
	tb.Helper()
	var s Stats
	raw, err := os.ReadFile(d.stats)
	if errors.Is(err, fs.ErrNotExist) {
		return s
	}
	if err == nil {
		err = binary.Read(bytes.NewReader(raw), binary.NativeEndian, &s)
	}
	if err != nil {
		tb.Fatalf("read the fake driver's statistics: %v", err)
	}
	return s
}

// Calls are the names of all calls so far.
func (d *Driver) Calls(tb testing.TB) []string {
	tb.Helper()
	var names []string
	for _, line := range d.lines(tb) {
		if name, _, ok := strings.Cut(line, " "); ok && name != "violation" {
			names = append(names, name)
		}
	}
	return names
}

// Violations are the calls that broke a rule, and which.
func (d *Driver) Violations(tb testing.TB) []string {
	tb.Helper()
	var found []string
	for _, line := range d.lines(tb) {
		if strings.HasPrefix(line, "violation ") {
			found = append(found, line)
		}
	}
	return found
}

func (d *Driver) lines(tb testing.TB) []string {
	raw, err := os.ReadFile(d.log)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}
