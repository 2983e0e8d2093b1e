package netplugin

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// recordAttached notes that ADD succeeds, last of all that it does.
func (c *call) recordAttached(a *attachment, made []danmcni.Interface) error {
	if a.IsOrdinary {
		return nil
	}
	return c.record(a, history.Attached, danmcni.Attached(made))
}

// recordDetaching notes that an attachment is about to be undone, before
// anything of it is.
func (c *call) recordDetaching(a *attachment) error {
	if a.IsOrdinary {
		return nil
	}
	return c.record(a, history.Detaching, nil)
}

// record appends one line to the record file. Plugins of several pods write at
// the same time, so the line goes in one piece; and it bears our time, as
// whoever reads the file comes later.
func (c *call) record(a *attachment, event history.AttachmentEvent, interfaces []history.AttachedInterface) error {
	if c.config.RecordFile == "" {
		return nil
	}
	line, err := json.Marshal(history.Record{Time: time.Now(), Attachment: &history.Attachment{
		Event: event, ID: a.ContainerID, Node: c.config.NodeName,
		Namespace: a.Namespace, Pod: a.Pod, PodUID: c.pod.uid, Interfaces: interfaces,
	}})
	if err != nil {
		return fmt.Errorf("encoding a record: %w", err)
	}
	file, err := os.OpenFile(c.config.RecordFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the record file: %w", err)
	}
	defer file.Close()
	if _, err := file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("writing a record: %w", err)
	}
	return file.Close()
}
