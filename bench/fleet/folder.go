package fleet

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vprof/vprof/bench/advise/trainers"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/experiment/sweep"
	"github.com/vprof/vprof/bench/job"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/bench/shard"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
	"github.com/vprof/vprof/profiler/device"
	"github.com/vprof/vprof/profiler/planner/coefficients"
)

// Schema names this version of fleet.json.
const Schema = "vprof.fleet/v1"

// A ModelCase is one model with one case of a fleet.
type ModelCase struct {
	Model   models.Model
	Case    models.Case
	Batches []int
	// Refused is the reason why the case cannot be trained, if that is known without recording; else nil.
	Refused error
}

// Units returns all combinations of models and cases, in the file's order. tell is called with each trainer
// configuration that is read.
func (c *Config) Units(file string, r *models.Registry, tell func(*trainers.Config)) ([]ModelCase, error) {
	cases := c.Cases
	if len(cases) == 0 {
		cases = []Case{{}}
	}
	var units []ModelCase
	seen := map[models.CaseKey]string{}
	for _, of := range c.Models {
		m, trained, err := of.resolveCase(filepath.Dir(file), r, tell)
		if err != nil {
			return nil, &input.FormatError{File: file, Line: of.line, Key: "models", Reason: err.Error()}
		}
		for _, k := range cases {
			u := ModelCase{Model: m, Case: k.applyTo(of.applyTo(trained))}
			recorded, full, err := r.Complete(m, u.Case)
			if u.Refused = err; err != nil && !step.IsRefused(err) {
				return nil, fmt.Errorf("%s: %w", caseLocation(file, of, k), err)
			}
			if err == nil {
				u.Model, u.Case = recorded, full
			}
			u.Batches = c.batchesFor(m, u.Case)
			key := m.Canonical(u.Case).Key()
			if before, twice := seen[key]; twice {
				return nil, input.FileErrorf(caseLocation(file, of, k), "this case is already in the fleet, as %s "+
					"(%v); remove one of them", before, u.Case)
			}
			seen[key] = caseLocation(file, of, k)
			units = append(units, u)
		}
	}
	return units, nil
}

// resolveCase returns the model, and its case with the model's defaults or the values of the trainer's configuration.
func (c Case) resolveCase(
	folder string, r *models.Registry, tell func(*trainers.Config),
) (models.Model, models.Case, error) {
	name := c.Model
	var t *trainers.Config
	var err error
	if len(c.Trainer) > 0 {
		if t, name, err = c.trainer(folder); err != nil {
			return models.Model{}, models.Case{}, err
		}
	}
	m, err := r.Lookup(name)
	if err != nil {
		return models.Model{}, models.Case{}, err
	}
	trained := m.DefaultCase()
	if t == nil {
		return m, trained, nil
	}
	settings, err := t.CaseSettings("", false)
	if err == nil {
		settings, err = t.SuitedSettings(m, settings)
	}
	if err == nil {
		err = trainers.Apply(settings, &trained)
	}
	tell(t)
	return m, trained, err
}

// trainer reads the trainer's configuration, and returns it with the name of the model to train.
func (c Case) trainer(folder string) (*trainers.Config, string, error) {
	var paths []string
	for _, p := range c.Trainer {
		if !filepath.IsAbs(p) {
			p = filepath.Join(folder, p)
		}
		paths = append(paths, p)
	}
	t, err := trainers.Open(paths, "")
	if err != nil {
		return nil, "", err
	}
	name := c.Model
	if name == "" {
		if name, err = t.ModelSpec(); err != nil {
			return nil, "", err
		}
	}
	path := strings.TrimPrefix(name, hfconfig.Scheme+":")
	t.CheckRemoteCode(path)
	return t, name, t.ChooseLayers(path)
}

// The engines that run tasks.
const (
	OnLocal      = "local"
	OnSlurm      = "slurm"
	OnKubernetes = "kubernetes"
)

// Manifest is fleet.json, which describes the contents of a fleet's folder.
type Manifest struct {
	Schema  string      `json:"schema"`
	Name    string      `json:"name"`
	Tool    report.Tool `json:"tool"`
	Engine  string      `json:"engine"`
	GPUs    []GPUTasks  `json:"boards"`
	Created time.Time   `json:"created"`
}

// GPUTasks describes the tasks of one GPU.
type GPUTasks struct {
	GPUKind `json:"-"`
	// Key is the name of the GPU's folder. Jobs is the number of jobs, in Tasks shards. Hash is the hash of the jobs.
	Key      string `json:"key"`
	Jobs     int    `json:"jobs"`
	Tasks    int    `json:"tasks"`
	JobsHash string `json:"hash"`
}

// ShardPlan returns the plan of the GPU's shards.
func (b GPUTasks) ShardPlan(tool report.Tool) shard.Plan {
	return shard.Plan{Verb: "fleet", Hash: b.JobsHash, Units: b.Jobs, Tool: tool}
}

// A Folder is the folder of a fleet, on a disk that all machines share.
type Folder struct {
	Dir string
	Manifest
	Config *Config
}

func (c *Config) jobsOf(
	b GPUKind, engine string, units []ModelCase, learned *coefficients.Selection,
) ([]job.Job, error) {
	target := job.Target{Device: cmp.Or(c.Strategy.Device, "cuda:0")}
	if c.Strategy.Device == "sim" || c.Strategy.Device == "" && engine == OnLocal {
		gpu, err := device.Lookup(b.GPU)
		if err != nil {
			return nil, err
		}
		target = job.Simulated(gpu)
	}
	s := c.Strategy
	var jobs []job.Job
	for _, u := range units {
		j := job.Sweep(report.CaseOf(u.Model, u.Case), target, u.Batches,
			sweep.Conditions{FindMax: s.FindMax, WarmUp: s.WarmUp, Repeat: max(1, s.Repeat), Verify: s.Verify})
		j.Calibrated = learned
		jobs = append(jobs, j)
	}
	return jobs, nil
}

const (
	manifestName = "fleet.json"
	configName   = "fleet.yaml"
)

// Prepare makes the folder of a fleet, unless it exists. If the existing folder belongs to another fleet or version of
// vprof, Prepare returns an error and leaves it unchanged.
func Prepare(dir, engine string, c *Config, units []ModelCase, learned *coefficients.Selection, tool report.Tool,
	now time.Time,
) (*Folder, error) {
	f := &Folder{dir, Manifest{Schema: Schema, Name: c.Name, Tool: tool, Engine: engine, Created: now}, c}
	jobs := map[string][]job.Job{}
	for _, b := range c.GPUs {
		of, err := c.jobsOf(b, engine, units, learned)
		if err != nil {
			return nil, err
		}
		hash, err := shard.Hash(of)
		if err != nil {
			return nil, err
		}
		jobs[b.Key()] = of
		f.GPUs = append(f.GPUs, GPUTasks{
			GPUKind: b, Key: b.Key(), Jobs: len(of),
			Tasks: min(len(of), cmp.Or(c.Strategy.TasksPerGPU, 100)), JobsHash: hash,
		})
	}
	was, err := Open(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case was.Tool != tool:
		return nil, input.Errorf("%s: the fleet was created by vprof %s, and this is %s; use that version, or "+
			"another folder (--dir)", dir, was.Tool.Version, tool.Version)
	case was.Engine != engine:
		return nil, input.Errorf("%s: the fleet runs on %s, not on %s; use that engine, or another folder (--dir)",
			dir, was.Engine, engine)
	case !equalJobs(was.GPUs, f.GPUs):
		return nil, input.Errorf("%s: the folder belongs to another fleet, or to this one before its file was "+
			"changed; use another folder (--dir), or remove it", dir)
	default:
		f.Created = was.Created
		return f, f.write() // what is asked of the scheduler may have changed
	}
	for _, b := range f.GPUs {
		if err := f.writeJobs(b, jobs[b.Key]); err != nil {
			return nil, err
		}
	}
	return f, f.write()
}

func equalJobs(a, b []GPUTasks) bool {
	return slices.EqualFunc(a, b, func(x, y GPUTasks) bool {
		return x.Key == y.Key && x.JobsHash == y.JobsHash && x.Tasks == y.Tasks
	})
}

// write writes the folder, with the manifest last: a folder with a manifest is complete.
func (f *Folder) write() error {
	if err := report.WriteFile(filepath.Join(f.Dir, configName), writeBytes(f.Config.source)); err != nil {
		return err
	}
	text, err := json.MarshalIndent(f.Manifest, "", "  ")
	if err != nil {
		return err
	}
	return report.WriteFile(filepath.Join(f.Dir, manifestName), writeBytes(append(text, '\n')))
}

func writeBytes(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// writeJobs writes one job per line. Model descriptions are separate files, since many jobs share one.
func (f *Folder) writeJobs(b GPUTasks, jobs []job.Job) error {
	for _, dir := range []string{filepath.Join(f.Dir, b.Key, "log"), filepath.Join(f.Dir, "models")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	written := map[string]bool{}
	return report.WriteFile(filepath.Join(f.Dir, b.Key, "jobs.jsonl"), func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		for _, j := range jobs {
			if hash := j.Case.ConfigHash; hash != "" && !written[hash] {
				written[hash] = true
				if err := report.WriteFile(f.modelPath(hash), writeBytes(j.Case.Config)); err != nil {
					return err
				}
			}
			j.Case = j.Case.Short()
			if err := e.Encode(j); err != nil {
				return err
			}
		}
		return nil
	})
}

func (f *Folder) modelPath(hash string) string { return filepath.Join(f.Dir, "models", hash+".json") }

// Open opens the folder of a fleet. The error wraps [fs.ErrNotExist] if the folder is not a fleet's.
func Open(dir string) (*Folder, error) {
	path := filepath.Join(dir, manifestName)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &Folder{Dir: dir}
	if err := json.Unmarshal(text, &f.Manifest); err != nil {
		return nil, &input.FormatError{File: path, Reason: "not the manifest of a fleet: " + err.Error()}
	}
	if f.Schema != Schema {
		return nil, &input.FormatError{File: path, Reason: fmt.Sprintf("its schema is %q, not %s", f.Schema, Schema)}
	}
	source, err := os.Open(filepath.Join(dir, configName))
	if err != nil {
		return nil, input.Errorf("%s: %w", dir, err)
	}
	defer source.Close()
	if f.Config, err = Read(source, filepath.Join(dir, configName)); err != nil {
		return nil, err
	}
	for i := range f.GPUs {
		for _, b := range f.Config.GPUs {
			if b.Key() == f.GPUs[i].Key {
				f.GPUs[i].GPUKind = b
			}
		}
		if f.GPUs[i].GPU == "" {
			return nil, input.Errorf("%s: fleet.yaml no longer names the GPU %s; add it again, or use another folder "+
				"(--dir)", dir, f.GPUs[i].Key)
		}
	}
	return f, nil
}

// GPU returns the tasks of the GPU with the given folder name.
func (f *Folder) GPU(key string) (GPUTasks, bool) {
	return lists.First(f.GPUs, func(b GPUTasks) bool { return b.Key == key })
}

// Path returns the folder of a GPU.
func (f *Folder) Path(b GPUTasks) string { return filepath.Join(f.Dir, b.Key) }

// Jobs reads a GPU's jobs with indices from up to, but not including, to.
func (f *Folder) Jobs(b GPUTasks, from, to int) ([]job.Job, error) {
	path := filepath.Join(f.Path(b), "jobs.jsonl")
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewReaderSize(file, 1<<20)
	var jobs []job.Job
	for n := range to {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return nil, &input.FormatError{File: path, Reason: fmt.Sprintf("has %d jobs, not %d", n, b.Jobs)}
		}
		if n < from {
			continue
		}
		j, err := f.readJob(text)
		if err != nil {
			return nil, &input.FormatError{File: path, Line: n + 1, Reason: err.Error()}
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// readJob parses a job and adds its model's description.
func (f *Folder) readJob(text []byte) (job.Job, error) {
	var j job.Job
	if err := json.Unmarshal(text, &j); err != nil || j.Case.ConfigHash == "" {
		if err == nil {
			return job.Read(bytes.NewReader(text))
		}
		return j, err
	}
	config, err := os.ReadFile(f.modelPath(j.Case.ConfigHash))
	if err != nil {
		return j, err
	}
	j.Case.Config = config
	if text, err = json.Marshal(j); err != nil {
		return j, err
	}
	return job.Read(bytes.NewReader(text))
}

// Lock prevents other commands from changing the fleet until release is called.
func (f *Folder) Lock(who string) (release func() error, err error) {
	release, by, err := shard.Lock(filepath.Join(f.Dir, "lock"), who)
	if errors.Is(err, shard.ErrLocked) {
		return nil, input.Errorf("%s: another command (%s) runs this fleet; watch it with \"vprof fleet status\", or "+
			"wait for its end", f.Dir, by)
	}
	return release, err
}
