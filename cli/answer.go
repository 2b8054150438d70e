package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/vprof/vprof/bench/experiment/step"
	"github.com/vprof/vprof/bench/report"
	"github.com/vprof/vprof/models"
)

// A request is a command line as JSON: a verb's flags by name, with numbers, strings, booleans, lists (joined by
// commas) and objects (a flag for each key), and arguments without a flag under [requestFiles].
type request map[string]any

// requestFiles is the key of arguments without a flag, such as trainers' files.
const requestFiles = "files"

// longestRequest is the length limit of a request line, in bytes.
const longestRequest = 1 << 20

// line returns the command line of a request, whose result has a format. It refuses flags that write files or choose
// the output.
func (r request) line(verb string, flags *pflag.FlagSet, format report.Format) ([]string, error) {
	args := []string{verb}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		values, err := valuesOf(r[name])
		if err != nil {
			return nil, usagef("%s: %w", name, err)
		}
		if name == requestFiles {
			for _, file := range values {
				if strings.HasPrefix(file, "-") { // it is no flag
					file = "./" + file
				}
				args = append(args, file)
			}
			continue
		}
		flag := flags.Lookup(name)
		if flag == nil || !requestable(flag) {
			return nil, usagef("%s: requests for %s have no such option", name, verb)
		}
		if _, object := r[name].(map[string]any); !object && len(values) > 1 {
			values = []string{strings.Join(values, ",")}
		}
		for _, v := range values {
			args = append(args, "--"+name+"="+v)
		}
	}
	return append(args, "--format="+string(format)), nil
}

// requestable reports whether requests may set a flag.
func requestable(flag *pflag.Flag) bool {
	return !flag.Hidden && groupOf(flag) != models.GroupOutput &&
		!slices.Contains([]string{helpAllFlag, offlineFlag, "help", "json-request", "json-lines", "request"}, flag.Name)
}

// valuesOf returns the values of a flag from JSON.
func valuesOf(v any) ([]string, error) {
	var all []string
	switch v := v.(type) {
	case []any:
		for _, each := range v {
			text, ok := scalar(each)
			if !ok {
				return nil, errors.New("lists may hold only numbers and strings")
			}
			all = append(all, text)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			text, ok := scalar(v[key])
			if !ok {
				return nil, fmt.Errorf("%s is neither a number nor a string", key)
			}
			all = append(all, key+"="+text)
		}
	default:
		text, ok := scalar(v)
		if !ok {
			return nil, fmt.Errorf("%v is not a valid value of an option", v)
		}
		all = []string{text}
	}
	return all, nil
}

// scalar formats a JSON value for the command line.
func scalar(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case json.Number, bool:
		return fmt.Sprint(v), true
	}
	return "", false
}

// requestOf parses a request.
func requestOf(text []byte) (r request, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&r)
	return r, err
}

// verbAnswer is a verb's answer to a request.
type verbAnswer struct {
	code exitCode
	// text is the verb's standard output, and result the same if it is JSON.
	text    []byte
	result  json.RawMessage
	message string
}

// refuse returns the answer to an invalid request.
func refuse(message string) verbAnswer { return verbAnswer{code: exitUsage, message: message} }

// runVerb runs a verb with its flags in this process. With only set, it creates no other verb.
func (a *app) runVerb(
	ctx context.Context, verb string, only func(*app) *cobra.Command, flags *pflag.FlagSet, r request,
	format report.Format,
) verbAnswer {
	var out, errs bytes.Buffer
	own := &app{
		stdin: strings.NewReader(""), stdout: &out, stderr: &errs, now: a.now, models: a.models,
		residuals: a.residuals, detect: a.detect, openGPU: a.openGPU, gpus: a.gpus, trials: a.trials,
		only: only, tell: a.tell,
	}
	args, err := r.line(verb, flags, format)
	if err != nil {
		return verbAnswer{code: codeOf(err), message: err.Error()}
	}
	code := run(ctx, own, args)
	s := verbAnswer{code: code, message: strings.TrimPrefix(strings.TrimSpace(errs.String()), "vprof: ")}
	if s.text = out.Bytes(); json.Valid(s.text) {
		s.result = s.text
	}
	return s
}

// planned returns the answer to a request for a plan.
func (s verbAnswer) planned() (*report.Response, error) {
	answer := &report.Response{Schema: report.ResponseSchema, ExitCode: int(s.code), Message: s.message}
	if s.result == nil {
		return answer, nil
	}
	var r report.Report
	if err := json.Unmarshal(s.result, &r); err != nil {
		return nil, err
	}
	answer.Of(&r)
	return answer, nil
}

// rememberTrials reuses recorded trials for later requests of the same case.
func (a *app) rememberTrials() {
	if a.trials == nil {
		a.trials = &step.Remembered{}
	}
}

// answerPlans answers requests for plans: one document, or one request a line, in order.
func (a *app) answerPlans(ctx context.Context, in io.Reader, lines bool) error {
	a.rememberTrials()
	flags := newPlanCmd(a).Flags()
	if !lines {
		text, err := io.ReadAll(io.LimitReader(in, longestRequest+1))
		if err != nil {
			return err
		}
		answer, err := a.answerPlan(ctx, flags, text)
		if err != nil {
			return err
		}
		if err := report.WriteResponse(a.stdout, answer, true); err != nil || answer.ExitCode == 0 {
			return err
		}
		return commandError{errors.New(cmp.Or(answer.Message, "nothing fits")), exitCode(answer.ExitCode)}
	}
	return inOrder(bufio.NewScanner(in),
		func(line []byte) (*report.Response, error) { return a.answerPlan(ctx, flags, line) },
		func(answer *report.Response) error { return report.WriteResponse(a.stdout, answer, false) })
}

// answerPlan answers one request. An invalid request gets an answer, too.
func (a *app) answerPlan(ctx context.Context, flags *pflag.FlagSet, text []byte) (*report.Response, error) {
	r, err := requestOf(text)
	switch {
	case len(text) > longestRequest:
		return refuse(fmt.Sprintf("a request has at most %d bytes", longestRequest)).planned()
	case err != nil:
		return refuse("the request is not a JSON object of options: " + err.Error()).planned()
	}
	return a.runVerb(ctx, "plan", newPlanCmd, flags, r, report.JSON).planned()
}

// inOrder answers lines concurrently and writes the answers in the order of the lines.
func inOrder[A any](in *bufio.Scanner, answer func([]byte) (A, error), write func(A) error) error {
	in.Buffer(nil, longestRequest)
	pending := make(chan chan A, 4*runtime.GOMAXPROCS(0))
	var work, writer errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	writer.Go(func() (err error) {
		for each := range pending {
			if a, ok := <-each; ok && err == nil {
				err = write(a)
			}
		}
		return err
	})
	for in.Scan() {
		line, to := bytes.Clone(in.Bytes()), make(chan A, 1)
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		pending <- to
		work.Go(func() error {
			defer close(to)
			a, err := answer(line)
			if err == nil {
				to <- a
			}
			return err
		})
	}
	err := work.Wait()
	close(pending)
	return errors.Join(in.Err(), err, writer.Wait())
}
