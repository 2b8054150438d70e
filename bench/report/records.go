package report

import "strings"

// Lines are reports of one point each, so that files of lines can be cut and
// put together freely.
func (r *Report) Lines() []any {
	lines := make([]any, len(r.Points))
	for i, p := range r.Points {
		line := *r
		line.Points = []Point{p}
		line.Stopped = nil
		line.Devices = nil
		if d, ok := r.Find(p.Device); ok {
			line.Devices = []Device{d}
		}
		lines[i] = line
	}
	return lines
}

// words are the cells of what the case's JSON does not say in a word: the settings, and of several ranks their
// number, their strategy and the one that is shown, empty for the one that needs most.
func (c Case) words() extra {
	all := extra{"settings": strings.Join(c.Settings.Words(), " ")}
	if c.Strategy != nil {
		s := *c.Strategy
		if s.Rank != nil {
			all["rank"], s.Rank = *s.Rank, nil
		}
		all["gpus"], all["strategy"] = c.GPUs, s.String()
	}
	return all
}

// Records are the points with everything that a spreadsheet can use, one a row.
func (r *Report) Records() [][]string {
	columns := `model=case_model task=case_task stage=case_stage amp=case_amp weights=case_weights
		checkpointing=case_checkpointing accumulate=case_accumulate optimizer=case_optimizer lora=case_lora settings
		alloc_conf=case_alloc_conf batch device
		estimate_allocated_bytes estimate_allocated_low_bytes estimate_allocated_high_bytes
		estimate_reserved_bytes estimate_reserved_low_bytes estimate_reserved_high_bytes
		estimate_device_bytes estimate_device_low_bytes estimate_device_high_bytes
		estimate_peak_phase estimate_verdict estimate_interpolated `
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
	columns += `dataset_bytes streamed_device_bytes claim_of claim_low_bytes claim_high_bytes claim_source
		gpu=board_gpu board=board_title board_memory_bytes board_uuid board_mig=mig host=board_host driver=board_driver
		cuda=board_cuda run_at gpus strategy rank`
	rows := make([][]any, len(r.Points))
	for i, p := range r.Points {
		rows[i] = []any{p, r.pointWords(p)}
	}
	return Rows(columns, rows, extra{"case": r.Case}, r.Case.words())
}

// pointWords are the cells of a point that its JSON does not have.
func (r *Report) pointWords(p Point) extra {
	d, _ := r.Find(p.Device)
	all := extra{"board": d, "run": p.Run.kind()}
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
		all["claim_of"], all["claim"], all["claim_source"] = c.Of, *c.Bytes, c.Source()
	}
	return all
}

// componentNames are the names of the components of every estimate, which has
// them all, in one order.
func (r *Report) componentNames() []string {
	var names []string
	for _, p := range r.Points {
		if p.Estimate == nil {
			continue
		}
		for _, c := range p.Estimate.Components {
			names = append(names, c.Name)
		}
		break
	}
	return names
}
