package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/models"
)

// maxSmokeBytes is the size of the largest result of a smoke test that is read, in bytes.
const maxSmokeBytes = 16 << 20

// ReadSmoke reads an earlier result of a smoke test, to detect growth. A result that could hide growth is an error:
// without checks, or with impossible values. file names the file in errors, which are [*input.FormatError].
func ReadSmoke(file string, r io.Reader) (*Smoke, error) {
	var s Smoke
	bounded := &io.LimitedReader{R: r, N: maxSmokeBytes}
	d := json.NewDecoder(bounded)
	err := decode(d, &s)
	switch {
	case bounded.N <= 0:
		err = fmt.Errorf("the file is longer than %d MiB", maxSmokeBytes>>20)
	case errors.Is(err, io.EOF):
		err = errors.New("the file is empty")
	case err == nil:
		err = s.check()
	}
	if err != nil {
		return nil, input.FileErrorf(file, "need a result of a smoke test: %v; make one with vprof smoke --export "+
			"FILE.json", err)
	}
	return &s, nil
}

func (s *Smoke) check() error {
	switch {
	case s.Schema != SmokeSchema:
		return fmt.Errorf("the schema is %q: need %s", s.Schema, SmokeSchema)
	case s.Case.Model == "":
		return errors.New("the case names no model")
	case s.Device.GPU == "" || s.Device.Memory <= 0 || s.Limit <= 0 || s.Limit > s.Device.Memory:
		return errors.New("no GPU is named, or the limit exceeds the GPU's memory")
	case !slices.ContainsFunc(s.Checks, func(c Check) bool { return !c.NotInVerdict }):
		return errors.New("none of the checks decides the verdict")
	}
	if err := cmp.Or(models.CheckBatch(s.Batch), checkAccumulate(s.Case.Case), s.Device.check()); err != nil {
		return err
	}
	safe := true
	for i, c := range s.Checks {
		if slices.ContainsFunc(s.Checks[:i], func(other Check) bool { return other.Name == c.Name }) {
			return fmt.Errorf("check %q appears twice", c.Name)
		}
		if err := c.check(s.Limit); err != nil {
			return fmt.Errorf("check %q: %w", c.Name, err)
		}
		safe = safe && (c.Safe || c.NotInVerdict)
	}
	if safe != s.Safe {
		return errors.New("the verdict safe contradicts the verdicts of the checks")
	}
	return s.checkComponents()
}

// check returns an error for values that no point of training can have.
func (c Check) check(limit int64) error {
	if c.Allocated <= 0 || c.Allocated > c.Reserved || c.Reserved > c.Device || c.Device > maxBytes || c.Need < 0 ||
		c.Need > maxBytes {
		return fmt.Errorf("the bytes contradict each other: %d allocated, %d reserved, %d on the device, %d needed "+
			"(need 0 < allocated <= reserved <= device)", c.Allocated, c.Reserved, c.Device, c.Need)
	}
	strained := c.Lengths != nil && c.Lengths.Epochs.RanShortOfMemory()
	if c.Safe && (c.Need > limit || c.OOM != nil || !c.Fits || strained) {
		return errors.New("the check is marked safe, but its numbers exceed the limit")
	}
	return c.Lengths.check()
}

// checkComponents returns an error unless the components sum to the bytes of the training step.
func (s *Smoke) checkComponents() error {
	total := int64(0)
	for _, c := range s.Components {
		total += c.Bytes
	}
	if step, ok := lists.First(s.Checks, func(c Check) bool { return c.Name == "training step" && c.Simulated }); ok {
		total = step.Device
	}
	return checkSum("components", s.Components, "the training step", total)
}

// label returns the name of a check without its batch size.
func (c Check) label() string {
	name, _, _ := strings.Cut(c.Name, ", batch ")
	return strings.TrimSpace(name)
}

// Compare finds growth since an earlier result called file, above both a share and 1 MiB. Earlier results of another
// model, or with a larger batch, are an error. Precision, settings and a smaller batch may differ, and are named.
func (s *Smoke) Compare(before *Smoke, file string, tolerance float64) error {
	was, is := before.Case, s.Case
	if was.Model != is.Model || was.Task != is.Task || before.Device.GPU != s.Device.GPU || was.Stage != is.Stage {
		return fmt.Errorf("it tests %s, stage %s on %s, but this test is of %s, stage %s on %s; make a baseline of "+
			"the same case", was.Model, was.Stage, before.Device.GPU, is.Model, is.Stage, s.Device.GPU)
	}
	if before.Batch > s.Batch {
		return fmt.Errorf("it tests batch %d, larger than batch %d, so growth would not be seen; make a new baseline",
			before.Batch, s.Batch)
	}
	for _, pair := range [][2][]Check{{s.Checks, before.Checks}, {before.Checks, s.Checks}} {
		for _, c := range pair[0] {
			if !slices.ContainsFunc(pair[1], func(b Check) bool { return b.label() == c.label() }) {
				return fmt.Errorf("check %q is only in one of the two results; make a new baseline", c.label())
			}
		}
	}
	s.Baseline = &Baseline{File: file, Grown: s.growthSince(before, tolerance), Changed: s.changedSettings(before)}
	allocated, device := s.highestPeaks()
	allocatedThen, deviceThen := before.highestPeaks()
	if s.Baseline.Peak = (Growth{"peak", deviceThen, device}); device <= deviceThen {
		s.Baseline.Peak = Growth{"allocated peak", allocatedThen, allocated}
	}
	slices.SortStableFunc(s.Baseline.Grown, func(a, b Growth) int {
		return cmp.Compare(b.Now-b.Before, a.Now-a.Before)
	})
	return nil
}

// growthSince lists the needs and components that have grown since an earlier result, if the largest need of training
// has grown: smaller ones may grow without harm. A new component counts as grown from zero.
func (s *Smoke) growthSince(before *Smoke, tolerance float64) []Growth {
	grown := []Growth{}
	has := func(was, now int64) bool {
		return now-was > bytesize.MiB && float64(now) > float64(was)*(1+tolerance)
	}
	see := func(name string, was, now int64) {
		if has(was, now) {
			grown = append(grown, Growth{name, was, now})
		}
	}
	allocated, device := s.highestPeaks()
	allocatedThen, deviceThen := before.highestPeaks()
	if !has(allocatedThen, allocated) && !has(deviceThen, device) {
		return grown
	}
	for _, c := range s.Components {
		was := int64(0)
		for _, b := range before.Components {
			if b.Name == c.Name {
				was = b.Bytes
			}
		}
		see(c.Name, was, c.Bytes)
	}
	for _, c := range s.Checks {
		for _, b := range before.Checks {
			if b.label() == c.label() {
				see("check "+c.label(), b.Device, c.Device)
			}
		}
	}
	return grown
}

// highestPeaks returns the largest allocated and device bytes of the judged moments.
func (s *Smoke) highestPeaks() (allocated, device int64) {
	for _, c := range s.Checks {
		if !c.NotInVerdict {
			allocated, device = max(allocated, c.Allocated), max(device, c.Device)
		}
	}
	return allocated, device
}

// changedSettings lists the differences between the tested cases.
func (s *Smoke) changedSettings(before *Smoke) []string {
	var all []string
	see := func(name string, was, is any) {
		if was, is := fmt.Sprint(was), fmt.Sprint(is); was != is {
			all = append(all, fmt.Sprintf("%s %s -> %s", name, cmp.Or(was, "default"), cmp.Or(is, "default")))
		}
	}
	was, is := before.Case, s.Case
	see("batch", before.Batch, s.Batch)
	for _, f := range models.Fields() {
		if f.JSON != "settings" && f.JSON != "stack" {
			see(f.TableLabel(), f.Text(was.Case), f.Text(is.Case))
		}
	}
	for _, name := range lists.Keys(was.Stack, is.Stack) {
		see(name, was.Stack[name], is.Stack[name])
	}
	for _, name := range lists.Keys(was.Settings, is.Settings) {
		value := func(c Case) any {
			if v, ok := c.Settings[name]; ok {
				return v
			}
			return ""
		}
		see(name, value(was), value(is))
	}
	see("vprof", before.Tool.Version, s.Tool.Version)
	return all
}
