package apiserver

import (
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

func (c *call) patch() (answer, error) {
	t := c.target.table
	apply, err := c.patchFunction()
	if err != nil {
		return answer{}, err
	}
	old := t.find(c.target.namespace, c.target.name)
	if old == nil {
		return answer{}, c.notFound()
	}
	patched, err := apply(old.bytes(inJSON), c.request.Body)
	if err != nil {
		return answer{}, err
	}
	o, err := t.kind.decodeObject(contentJSON, patched)
	if err != nil {
		return answer{}, err
	}
	if err := c.checkName(o); err != nil {
		return answer{}, err
	}
	v, err := c.replace(old, o)
	if err != nil {
		return answer{}, err
	}
	return c.answerVersion(http.StatusOK, v), nil
}

// patchFunction returns how to apply the body to an object in JSON.
func (c *call) patchFunction() (func(original, patch []byte) ([]byte, error), error) {
	k := c.target.table.kind
	switch media := types.PatchType(mediaType(c.request.ContentType)); media {
	case types.JSONPatchType:
		return applyJSONPatch, nil
	case types.MergePatchType:
		return applyMergePatch, nil
	case types.StrategicMergePatchType:
		if k.isCustom() {
			return nil, unsupportedMedia(string(media))
		}
		return k.applyStrategicPatch, nil
	case types.ApplyYAMLPatchType, types.ApplyCBORPatchType:
		return nil, notImplemented("server-side apply")
	default:
		return nil, unsupportedMedia(string(media))
	}
}

// applyJSONPatch answers a test that fails by 422, as the real server does.
func applyJSONPatch(original, patch []byte) ([]byte, error) {
	operations, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	patched, err := operations.Apply(original)
	if err != nil {
		return nil, refusal(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "the server rejected our request due to an error in our request: %v", err)
	}
	return patched, nil
}

func applyMergePatch(original, patch []byte) ([]byte, error) {
	patched, err := jsonpatch.MergePatch(original, patch)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	return patched, nil
}

func (k *kind) applyStrategicPatch(original, patch []byte) ([]byte, error) {
	patched, err := strategicpatch.StrategicMergePatch(original, patch, k.newObject())
	if err != nil {
		return nil, badRequest("%v", err)
	}
	return patched, nil
}
