package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/vprof/vprof/bench/advise/diagnose"
	"github.com/vprof/vprof/bench/advise/remedy"
	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/observe/oomtext"
	"github.com/vprof/vprof/bench/observe/series"
	"github.com/vprof/vprof/bench/observe/snapshot"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/profiler/device"
)

type diagnoseOptions struct {
	app    *app
	c      caseFlags
	target gpuFlags
	batch  int
	// observedPeak is the peak memory of the training in the files; zero if they have none.
	observedPeak remedy.Peak
	out          output
}

func newDiagnoseCmd(a *app) *cobra.Command {
	o := &diagnoseOptions{app: a, out: output{app: a}}
	cmd := &cobra.Command{
		Use:   "diagnose FILE...",
		Short: "Find leaks, spikes, fragmentation and waste in a run, a snapshot or a log",
		Args: argCount(1, unlimitedArgs,
			"name a file: a report, a snapshot, the text of an error, or a log of vprof monitor or nvidia-smi"),
		RunE: func(cmd *cobra.Command, args []string) error { return runDiagnose(cmd.Context(), o, args) },
	}
	o.c.register(cmd, a)
	o.c.registerAllocConf()
	o.target.register(cmd, "`GPU` of the training (see vprof gpus)")
	cmd.Flags().IntVar(&o.batch, "batch", 0,
		"batch `size` of the training (default: the last of the report, or the model's)")
	return o.out.register(cmd)
}

func runDiagnose(ctx context.Context, o *diagnoseOptions, paths []string) error {
	if o.batch < 0 {
		return usagef("--batch: %d is not a batch size; the smallest is 1", o.batch)
	}
	d := &report.Diagnosis{Schema: report.DiagnosisSchema, Tool: vprofTool(), Findings: []report.Finding{}}
	var err error
	if len(paths) == 1 {
		err = o.diagnoseFile(ctx, d, paths[0])
	} else {
		err = o.diagnoseRanks(ctx, d, paths)
	}
	if err != nil {
		return err
	}
	setsAllocator := func(text string) bool { return strings.HasPrefix(text, report.AllocConf) }
	tried, helps := lists.First(d.Remedies, func(r report.Remedy) bool { return setsAllocator(r.What) })
	for i := range d.Findings {
		f := &d.Findings[i]
		f.Advice = slices.DeleteFunc(f.Advice, func(text string) bool {
			return text == diagnose.NameTheModel && o.c.model != "" ||
				setsAllocator(text) && d.PresentNeed != nil && !helps
		})
		last := func(text string) bool { return tried.Unsafe != "" && setsAllocator(text) }
		slices.SortStableFunc(f.Advice, func(a, b string) int { return report.CompareBools(!last(a), !last(b)) })
	}
	if err := o.out.finish(d); err != nil {
		return err
	}
	if n := d.Problems(); n > 0 {
		return negativeVerdict{fmt.Errorf("problems found: %d", n)}
	}
	return nil
}

// diagnoseRanks diagnoses snapshots of several ranks, labeled with their files' names.
func (o *diagnoseOptions) diagnoseRanks(ctx context.Context, d *report.Diagnosis, paths []string) error {
	var names []string
	var peaks []int64
	for _, path := range paths {
		data, name, err := o.app.readAll(path)
		if err != nil {
			return err
		}
		if !snapshot.IsSnapshot(data) {
			return input.FileErrorf(name, "not a memory snapshot of PyTorch: with several files, each must be the "+
				"snapshot of one rank; name the others one at a time")
		}
		s, err := snapshot.Parse(data, name)
		if err != nil {
			return err
		}
		for _, device := range s.Devices() {
			label := name
			if len(s.Devices()) > 1 {
				label = fmt.Sprintf("%s device %d", name, device)
			}
			sum := s.Summarize(device)
			names, peaks = append(names, label), append(peaks, sum.PeakAllocated)
			d.Findings = append(d.Findings, nameGPU(label, true, diagnose.FindInSnapshot(sum))...)
		}
	}
	d.Subject = strings.Join(names, ", ")
	d.Findings = append(d.Findings, diagnose.CompareRanks(names, peaks)...)
	o.observedPeak.Bytes = slices.Max(peaks)
	return o.addRemedies(ctx, d, device.GPU{})
}

func nameGPU(gpu string, several bool, found []report.Finding) []report.Finding {
	for i := range found {
		if several {
			found[i].GPU = gpu
		}
	}
	return found
}

func (o *diagnoseOptions) diagnoseFile(ctx context.Context, d *report.Diagnosis, path string) error {
	data, name, err := o.app.readAll(path)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return input.FileErrorf(name, "the file is empty; need a log, a memory snapshot or a result of vprof")
	}
	d.Subject = name
	switch head := data[:min(len(data), 4096)]; {
	case snapshot.IsSnapshot(head):
		err = o.diagnoseSnapshot(ctx, d, data, name)
	case isReport(head):
		err = o.diagnoseReport(ctx, d, data, name)
	case series.IsLog(head):
		err = o.diagnoseSeries(ctx, d, data, name)
	case oomtext.Contains(data), oomtext.HostMessage(data) != "":
		messages := oomtext.Parse(string(data))
		d.Findings = append(d.Findings, diagnose.FindInErrors(messages)...)
		for _, m := range messages {
			o.observedPeak.Bytes = max(o.observedPeak.Bytes, m.Allocated)
		}
		if line := oomtext.HostMessage(data); line != "" {
			d.Findings = append(d.Findings, diagnose.HostMemoryFinding(line))
		}
		if oomtext.Contains(data) {
			err = o.addRemedies(ctx, d, gpuOfMessages(messages, d))
		}
	default:
		err = input.FileErrorf(name, "nothing to diagnose was found%s; need a log with an OutOfMemoryError or a "+
			"process killed for memory, a memory snapshot of PyTorch, a result of vprof sweep or run, or a log of "+
			"vprof monitor or nvidia-smi with its header", report.SchemaNote(name, head))
	}
	return err
}

// readAll reads a file, or standard input for "-".
func (a *app) readAll(path string) (data []byte, name string, err error) {
	defer input.BeginReading()()
	from, name, err := a.open(path)
	if err != nil {
		return nil, name, err
	}
	defer from.Close()
	data, err = input.ReadAll(from, name)
	if err == nil && bytes.HasPrefix(data, []byte("\x1f\x8b")) { // gzip
		if data, err = input.Decompress(data, maxExpandedBytes); err != nil {
			err = input.FileErrorf(name, "gzip data cannot be unpacked: %v; compress the file again", err)
		}
	}
	return data, name, err
}

// maxExpandedBytes is the size limit of a decompressed file, in bytes: a small file must not fill the machine.
const maxExpandedBytes = 128 << 20

func (o *diagnoseOptions) diagnoseSnapshot(ctx context.Context, d *report.Diagnosis, data []byte, name string) error {
	s, err := snapshot.Parse(data, name)
	if err != nil {
		return err
	}
	devices := s.Devices()
	for _, device := range devices {
		sum := s.Summarize(device)
		o.observedPeak.Bytes = max(o.observedPeak.Bytes, sum.PeakAllocated)
		d.Findings = append(d.Findings, nameGPU(fmt.Sprint(device), len(devices) > 1, diagnose.FindInSnapshot(sum))...)
	}
	return o.addRemedies(ctx, d, device.GPU{})
}

func (o *diagnoseOptions) diagnoseSeries(ctx context.Context, d *report.Diagnosis, data []byte, name string) error {
	all, err := series.Read(bytes.NewReader(data), name)
	if err != nil {
		return err
	}
	product := ""
	for _, s := range all {
		found := diagnose.FindInSeries(s)
		if len(s.WatchedBytes) > 0 {
			most := max(o.observedPeak.Bytes, int64(series.Quantile(s.WatchedBytes, 1)))
			o.observedPeak = remedy.Peak{Bytes: most, Device: true}
		}
		if product == "" && len(found) > 0 {
			product = s.Product
		}
		d.Findings = append(d.Findings, nameGPU(s.GPU, len(all) > 1, found)...)
	}
	gpu, err := device.Lookup(product)
	if err != nil {
		gpu = device.GPU{} // without an entry in the catalog nothing can be planned
	}
	return o.addRemedies(ctx, d, gpu)
}

// gpuOfMessages returns the GPU on which memory ran out, by the size of its memory: the first of the catalog's nearest,
// or the zero GPU. If no GPU has just that size, the diagnosis names all that are near enough.
func gpuOfMessages(messages []oomtext.Message, d *report.Diagnosis) device.GPU {
	for _, m := range messages {
		off := func(gpu device.GPU) int64 { return max(gpu.Memory-m.Total, m.Total-gpu.Memory, roundingError) }
		most := max(driverDifference, m.Total/driverDifferenceDivisor)
		like := slices.DeleteFunc(device.Catalog(), func(g device.GPU) bool { return m.Total == 0 || off(g) >= most })
		slices.SortStableFunc(like, func(a, b device.GPU) int { return cmp.Compare(off(a), off(b)) })
		if len(like) > 0 {
			others := []string{}
			for _, gpu := range like[1:] {
				if off(gpu) == off(like[0]) || off(like[0]) > roundingError {
					others = append(others, gpu.Name)
				}
			}
			d.GPU = fmt.Sprintf("assumed GPU: %s, by its %s%s; --gpu chooses another", like[0].Name,
				bytesize.Format(m.Total), phrase.Prefix(", or ", strings.Join(others, ", ")))
			return like[0]
		}
	}
	return device.GPU{}
}

// Limits, in bytes, of the difference between the total memory in a message and the memory of a GPU in the catalog:
// printed is the error of rounding to two digits of GiB. Drivers differ by driverDifference or by one part in
// driverDifferenceDivisor: published errors of A100 with 40 GB name 39.38 to 39.59 GiB.
const (
	roundingError                 = 5 << 20
	driverDifference        int64 = 64 << 20
	driverDifferenceDivisor       = 160
)

func (o *diagnoseOptions) diagnoseReport(ctx context.Context, d *report.Diagnosis, data []byte, name string) error {
	reports, err := report.Read(name, bytes.NewReader(data))
	if err != nil {
		return err
	}
	var at *report.Point
	var of *report.Report
	for _, r := range reports {
		for i := range r.Points {
			if p := &r.Points[i]; p.Run != nil && (o.batch == 0 || p.Batch == o.batch) {
				at, of = p, r
			}
		}
	}
	if at == nil {
		return usagef("%s: the file holds no run to diagnose; name a result of vprof sweep or vprof run", name)
	}
	ran, _ := of.Find(at.Device)
	d.Findings = append(d.Findings, diagnose.FindInRun(ran, at.Run)...)
	if of.Script != nil {
		if found := diagnose.FindInScript(of.Script); len(found) > 0 {
			enlarge := func(f report.Finding) bool { return f.Kind == "under-use" }
			d.Findings = slices.Concat(found, slices.DeleteFunc(d.Findings, enlarge))
		}
		d.Remedies, d.Case = of.Script.Remedies, of.Case.Model+" on "+ran.GPU
		if o.c.model == "" {
			return nil
		}
	}
	gpu, err := step.GPUOf(ran)
	if err != nil {
		gpu = device.GPU{}
	}
	if o.c.model != "" {
		return o.addRemedies(ctx, d, gpu)
	}
	evidence, err := o.c.readEvidence(o.app)
	if err != nil {
		return err
	}
	setup, err := step.NewFromReport(o.app.models(), of.Case, evidence)
	if err != nil {
		return err
	}
	return o.addRemediesFor(ctx, d, setup, of.Case.Model, at.Batch, gpu)
}

// addRemedies adds remedies for the case of the flags, if any. The GPU comes from --gpu, or else from the file.
func (o *diagnoseOptions) addRemedies(ctx context.Context, d *report.Diagnosis, gpu device.GPU) error {
	if o.c.model == "" {
		d.GPU = ""
		return nil
	}
	setup, c, err := o.c.newSetup(o.app)
	if err != nil {
		return err
	}
	return o.addRemediesFor(ctx, d, setup, c.Model, cmp.Or(o.batch, c.Batch), gpu)
}

// gpuForRemedies returns the GPU of --gpu, else the GPU of the file; without a name if neither is known. It says in the
// diagnosis what is unusual about it.
func (o *diagnoseOptions) gpuForRemedies(d *report.Diagnosis, seen device.GPU) (gpu device.GPU, err error) {
	if !o.target.isSet() {
		if seen.Name == "" {
			d.GPU = "unknown GPU: choose it with --gpu to get remedies with their savings"
		}
		return seen, nil
	}
	d.GPU = ""
	if gpu, err = o.target.oneGPU(); err != nil {
		return gpu, err
	}
	off := seen.Memory - gpu.Memory
	if seen.Memory > 0 && max(off, -off) > max(driverDifference, gpu.Memory/driverDifferenceDivisor) {
		d.GPU = fmt.Sprintf("the memory of %s, not the file's %s", gpu.Name, bytesize.Format(seen.Memory))
	}
	return gpu, nil
}

func (o *diagnoseOptions) addRemediesFor(ctx context.Context, d *report.Diagnosis, setup *step.Setup, model string,
	batch int, gpu device.GPU,
) error {
	enlarge := slices.IndexFunc(d.Findings, func(f report.Finding) bool { return f.Kind == "under-use" })
	if enlarge < 0 && !d.IsShort() && o.observedPeak.Bytes == 0 {
		return nil
	}
	gpu, err := o.gpuForRemedies(d, gpu)
	if err != nil || gpu.Name == "" {
		return err
	}
	now, err := remedy.JudgeStep(ctx, setup, gpu, batch)
	if err != nil {
		return err
	}
	beyond, finding := now.UnexplainedBytes(o.observedPeak)
	addTo := func(kind string, evidence ...string) bool {
		i := slices.IndexFunc(d.Findings, func(f report.Finding) bool { return f.Kind == kind })
		if i >= 0 {
			d.Findings[i].Evidence = append(d.Findings[i].Evidence, evidence...)
		}
		return i >= 0
	}
	switch {
	case beyond == 0 && o.observedPeak.Bytes > 0:
		addTo("out of memory", finding.Evidence...)
	case beyond > 0 && addTo("leak", append([]string{finding.What}, finding.Evidence...)...): // the same bytes
	case beyond > 0: // what the other findings' advice would not remove
		finding.Problem = d.IsShort()
		d.Findings = slices.Insert(d.Findings, 0, finding)
		if enlarge >= 0 {
			enlarge++
		}
	}
	if enlarge < 0 && !d.IsShort() {
		return nil
	}
	d.Case = fmt.Sprintf("%s, batch %d on %s", model, batch, gpu.Name)
	if enlarge >= 0 {
		more, err := now.LargerBatchAdvice(ctx)
		if err != nil {
			return err
		}
		if more != "" {
			d.Findings[enlarge].Advice = append(d.Findings[enlarge].Advice, more)
		}
	}
	if d.IsShort() {
		d.PresentNeed = new(now.PresentNeed(beyond))
		d.Remedies, err = now.Remedies(ctx, beyond)
	}
	return err
}
