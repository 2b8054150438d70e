package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/vprof/vprof/internal/lists"
)

// Rows returns rows of CSV below the names of their columns, which are separated by white space in columns. A cell is
// the value with that name in the row's JSON, or else in one of the values around it. Names of nested values are
// joined: estimate_device_bytes is device_bytes of estimate. NAME=PATH gives a column another name. A cell without a
// value is empty. Bytes are exact, fractions have six digits, and types with a String method are formatted by it.
func Rows[R any](columns string, rows []R, around ...any) [][]string {
	names := strings.Fields(columns)
	paths := make([]string, len(names))
	for i, column := range names {
		name, path, _ := strings.Cut(column, "=")
		names[i], paths[i] = name, cmp.Or(path, name)
	}
	outer := csvCells{}
	for _, v := range around {
		outer.add("", reflect.ValueOf(v))
	}
	all := [][]string{names}
	for _, r := range rows {
		found := maps.Clone(outer)
		found.add("", reflect.ValueOf(r))
		row := lists.Map(paths, func(path string) string { return found[path] })
		all = append(all, row)
	}
	return all
}

// extraValues are cells by column name that a row's JSON does not have.
type extraValues map[string]any

// csvCells are the texts of values by their path.
type csvCells map[string]string

func (c csvCells) add(path string, v reflect.Value) {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return
	}
	written := false
	switch x := v.Interface().(type) {
	case time.Time:
		if !x.IsZero() {
			c[path] = x.UTC().Format(time.RFC3339)
		}
		return
	case []Component:
		for _, part := range x {
			c[pathOf(path, strings.ReplaceAll(part.Name, " ", "_"), "bytes")] = integer(part.Bytes)
		}
		return
	case []string:
		c[path] = strings.Join(x, " ")
		return
	case []any:
		for _, part := range x {
			c.add(path, reflect.ValueOf(part))
		}
		return
	case extraValues:
		for name, value := range x {
			c.add(pathOf(path, name), reflect.ValueOf(value))
		}
		return
	case fmt.Stringer:
		c[path], written = x.String(), true
	}
	v = reflect.Indirect(v)
	if v.Kind() == reflect.Struct {
		c.addFields(path, v)
	} else if text, ok := scalarText(v); ok && !written {
		c[path] = text
	}
}

// addFields adds the fields of a struct under their names in JSON.
func (c csvCells) addFields(path string, v reflect.Value) {
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			if value = reflect.Indirect(value); value.Kind() == reflect.Struct {
				c.addFields(path, value)
			}
		case f.IsExported() && name != "-":
			c.add(pathOf(path, cmp.Or(name, f.Name)), value)
		}
	}
}

func pathOf(path ...string) string { return strings.TrimPrefix(strings.Join(path, "_"), "_") }

// scalarText formats a number, text or bool for CSV; false for other kinds.
func scalarText(v reflect.Value) (text string, ok bool) {
	switch {
	case v.CanInt():
		return integer(v.Int()), true
	case v.CanFloat():
		return number(v.Float()), true
	case v.Kind() == reflect.Bool, v.Kind() == reflect.String:
		return fmt.Sprint(v), true
	}
	return "", false
}

// number formats a fraction with six digits, and a whole number with all of its digits.
func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

func integer(n int64) string { return strconv.FormatInt(n, 10) }

// jsonLines splits a document into one for each row, so that lines can move between files; rows points to the rows.
func jsonLines[D, R any](document D, rows func(*D) *[]R) []any {
	all := *rows(&document)
	lines := make([]any, len(all))
	for i := range all {
		*rows(&document) = all[i : i+1 : i+1]
		lines[i] = document
	}
	return lines
}

// AsLines returns the elements of a list as lines.
func AsLines[T any](list []T) []any { return lists.Map(list, func(v T) any { return v }) }

// Data implements [Document]. Lines are reports of one point each, so that lines of files can be moved between them.
// CSV has a row for each point.
func (r *Report) Data() Data {
	lines, rows := make([]any, len(r.Points)), make([][]any, len(r.Points))
	for i, p := range r.Points {
		rows[i] = []any{p, r.pointTextValues(p)}
		line := *r
		line.Points = []Point{p}
		line.Stopped = nil
		line.Devices = nil
		if d, ok := r.Find(p.Device); ok {
			line.Devices = []Device{d}
		}
		lines[i] = line
	}
	return Data{lines, Rows(r.columns(), rows, extraValues{"case": r.Case}, r.Case.textValues())}
}

// textValues returns the cells for which the case's JSON has no single value: the settings and, for several ranks,
// their number, the strategy and the rank, which is empty for the rank that needs most.
func (c Case) textValues() extraValues {
	all := extraValues{"settings": strings.Join(c.Settings.Assignments(), " ")}
	if c.Strategy != nil {
		s := *c.Strategy
		if s.Rank != nil {
			all["rank"], s.Rank = *s.Rank, nil
		}
		all["gpus"], all["strategy"] = c.GPUs, s.String()
	}
	return all
}

// columns returns the names of the report's CSV columns.
func (r *Report) columns() string {
	columns := `model=case_model task=case_task stage=case_stage amp=case_amp weights=case_weights
		checkpointing=case_checkpointing accumulate=case_accumulate optimizer=case_optimizer lora=case_lora settings
		alloc_conf=case_alloc_conf batch device
		estimate_allocated_bytes estimate_allocated_low_bytes estimate_allocated_high_bytes
		estimate_reserved_bytes estimate_reserved_low_bytes estimate_reserved_high_bytes
		estimate_device_bytes estimate_device_low_bytes estimate_device_high_bytes
		estimate_peak_phase estimate_verdict estimate_unsafe estimate_interpolated `
	for _, name := range r.componentNames() {
		part := strings.ReplaceAll(name, " ", "_") + "_bytes"
		columns += "estimate_" + part + "=estimate_components_" + part + " "
	}
	if r.Kind == Sweep {
		columns += `run run_fits run_requested_bytes run_allocated_bytes run_reserved_bytes run_device_bytes
			run_peak_phase run_retries oom_phase=run_oom_phase oom_op=run_oom_op oom_class=run_oom_class
			oom_want_bytes=run_oom_want_bytes device_error step_seconds=run_step_seconds
			samples_per_second=run_step_samples_per_second
			run_context_bytes run_kernels_bytes run_others_bytes run_process_bytes `
	}
	return columns + `dataset_bytes streamed_device_bytes claim_of claim_low_bytes claim_high_bytes claim_source
		gpu=board_gpu board=board_title board_memory_bytes board_uuid board_mig=mig host=board_host driver=board_driver
		cuda=board_cuda run_at gpus strategy rank`
}

// pointTextValues returns the cells of a point that its JSON does not have.
func (r *Report) pointTextValues(p Point) extraValues {
	d, _ := r.Find(p.Device)
	all := extraValues{"board": d, "run": p.Run.Kind()}
	if d.UUID != "" {
		all["mig"] = d.MIG
	}
	if share, ok := p.Error(); ok {
		all["device_error"] = share
	}
	if r.Case.Dataset > 0 {
		all["dataset_bytes"] = r.Case.Dataset
	}
	if len(p.Claims) > 0 && p.Claims[0].Bytes != nil {
		c := p.Claims[0]
		all["claim_of"], all["claim"], all["claim_source"] = c.Quantity, *c.Bytes, c.Source()
	}
	return all
}

// componentNames returns the names of the estimates' components. Rare ones are not in all of them.
func (r *Report) componentNames() (names []string) {
	for _, p := range r.Points {
		if p.Estimate != nil {
			names = lists.Union(names, lists.Map(p.Estimate.Components, func(c Component) string { return c.Name })...)
		}
	}
	return names
}
