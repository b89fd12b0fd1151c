"""`key_serializer` and `value_serializer`: Avro, JSON Schema and Protobuf, with the id of the schema at the record.

A record whose subject is known is serialized at once: only the first one of a topic waits for the registry.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import Any, Final, Literal, cast
from weakref import WeakKeyDictionary

from aiokprod.config.option_checks import takes
from aiokprod.errors import ConfigError, SerializationError, advise
from aiokprod.integrations.schema_registry.decoding import as_dict
from aiokprod.integrations.schema_registry.losses import Check, loss_check
from aiokprod.integrations.schema_registry.registry import RegistryError, SchemaRegistry, checked_options
from aiokprod.serializers import HeaderList

FormatName = Literal["avro", "json"]
PlaceName = Literal["prefix", "header"]
SubjectName = Literal["topic", "record", "topic_record"] | Callable[[str, str | None], str | None]
STRATEGY: Final = "subject.name.strategy"
NAMES: Final = {"avro": "Avro", "json": "JSON", "protobuf": "Protobuf"}


CLASSES: Final = {
    "avro": ("avro", "AsyncAvroSerializer"),
    "json": ("json_schema", "AsyncJSONSerializer"),
    "protobuf": ("protobuf", "AsyncProtobufSerializer"),
}


class Question:
    """A question to the registry about the schema of one topic. The records sent until it has failed share its failure."""

    def __init__(self) -> None:
        self.failure: RegistryError | None = None
        self.task: asyncio.Task[None] | None = None  # made when the first record has its turn


class Made:
    """A serializer of the client in one event loop, and what it knows of topics.

    Args:
        serializer: None until the first record has its turn.
    """

    def __init__(self, serializer: Any = None) -> None:
        self.serializer = serializer
        self.topics: set[str] = set()
        """Topics whose schema it has found. If that cannot change, it awaits nothing for them any more."""
        self.questions: dict[str, Question] = {}
        """The latest question about each topic that has not failed."""


class RegistrySerializer:
    """The serializer that `key_serializer` and `value_serializer` make, for the keys or values of producers.

    Args:
        registry: the schema registry.
        schema: as of `value_serializer`.
        form: "avro", "json" or "protobuf".
        is_key: True for keys.
        to_dict: as of `value_serializer`.
        subject: as of `value_serializer`.
        options: of confluent-kafka's serializer.

    Raises:
        ConfigError: the schema is none.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: Any,
        form: Literal["avro", "json", "protobuf"],
        is_key: bool,
        to_dict: Callable[[Any], Any] | None,
        subject: SubjectName,
        options: Mapping[str, Any],
    ) -> None:
        self._registry = registry
        self._schema = schema
        self._form: Literal["avro", "json", "protobuf"] = form
        self._is_key = is_key
        self._to_dict = to_dict
        self._subject = subject
        self._options = checked_options(options)
        self._field = "key" if is_key else "value"
        self._parsed = checked_schema(schema, form)
        self._name = name_of(schema, self._parsed)
        self._check: Check | None = None
        if STRATEGY not in self._options and f"{STRATEGY}.type" not in self._options:
            self._options[STRATEGY] = self._subject_of
        # With a strategy of the program each record may have a subject of its own: no failure is shared then.
        self._is_shared = self._options.get(STRATEGY) == self._subject_of
        self._is_fixed = not self._options.get("use.latest.version") and not self._options.get(
            "use.latest.with.metadata"
        )
        if form == "avro" and self._is_fixed and self._parsed is not None:
            self._check = loss_check(self._parsed)
        self._try_options()
        self._subjects: dict[str, str] = {}
        self._made: WeakKeyDictionary[asyncio.AbstractEventLoop, Made] = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"{self._field}_serializer({self._registry!r}, {NAMES[self._form]} schema {self._name!r})"

    def _try_options(self) -> None:
        """Make a serializer of the client without a registry, to see that it takes the options.

        Raises:
            ConfigError: it does not.
        """
        if getattr(self._schema, "references", None):
            return  # which it would ask the registry for
        making = self._client_serializer(None)
        try:
            making.send(None)
        except StopIteration:
            return
        except (ValueError, TypeError) as error:
            raise ConfigError(f"confluent-kafka does not take the options: {error}") from None
        making.close()

    def _client_serializer(self, client: Any) -> Any:
        """Return the coroutine that makes a serializer of the client."""
        module, name = CLASSES[self._form]
        kind: Any = getattr(import_module(f"confluent_kafka.schema_registry.{module}"), name)
        order = (client, self._schema) if self._form == "avro" else (self._schema, client)
        return kind(*order, conf=self._options)

    def configure(self, config: object, is_key: bool) -> None:
        """Check that it is used for what it was made for; the producer calls it at its start.

        Args:
            config: of the producer.
            is_key: True where it is given as `key_serializer`.

        Raises:
            ConfigError: it was made for the other one.
        """
        if is_key is not self._is_key:
            given = "key" if is_key else "value"
            raise ConfigError(
                f"{self!r} is given as {given}_serializer: make it with {given}_serializer(registry, ...)"
            )

    def __call__(self, topic: str, headers: HeaderList, data: Any) -> bytes | Awaitable[bytes | None] | None:
        """Serialize `data`; None stays None, which is a tombstone."""
        if data is None:
            return None
        if self._to_dict is not None:
            data = self._to_dict(data)
        if self._check is not None:
            why = self._check(data)
            if why:
                return failed(self._unfit(why, topic))
        loop = asyncio.get_running_loop()
        made = self._made.get(loop)
        if made is None:
            made = self._made[loop] = Made()
        elif self._is_fixed and topic in made.topics:
            return self._at_once(made, topic, headers, data)
        return self._ask(made, topic, headers, data, self._question(made, topic))

    async def close(self) -> None:
        """Close the registry's connections, unless other serializers use them; the producer calls it when it closes.

        Cancellation: the connections are given up.
        """
        made = self._made.pop(asyncio.get_running_loop(), None)
        if made is not None:
            tasks = [each.task for each in made.questions.values() if each.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._registry.let_go(self)

    def _at_once(
        self, made: Made, topic: str, headers: HeaderList, data: Any
    ) -> bytes | Awaitable[bytes | None] | None:
        """Serialize without the event loop: with the schema's id known the client awaits nothing."""
        coroutine = made.serializer(data, self._context(topic, headers))
        try:
            coroutine.send(None)
        except StopIteration as done:
            return cast("bytes | None", done.value)
        except Exception as error:
            return failed(self._told(error, topic, data))
        coroutine.close()  # it waits after all, as for an entry that its cache has lost
        return self._ask(made, topic, headers, data, Question())

    @staticmethod
    def _question(made: Made, topic: str) -> Question:
        """Return the question about this topic that has not failed."""
        question = made.questions.get(topic)
        if question is None:
            question = made.questions[topic] = Question()
        return question

    async def _ask(self, made: Made, topic: str, headers: HeaderList, data: Any, question: Question) -> bytes | None:
        """Serialize; the client asks the registry if it must, once for all records that wait for the same answer."""
        if self._is_shared and topic not in made.topics and question.failure is None:
            if question.task is None:
                # A task of its own: the deadline of the record that comes first must not end it for all others.
                name = f"aiokprod-schema-{topic}"
                question.task = asyncio.create_task(self._find(made, topic, list(headers), data, question), name=name)
            await asyncio.wait([question.task])
        if question.failure is not None:
            raise question.failure.clone() from None
        try:
            serializer = await self._serializer(made)
            result: bytes | None = await serializer(data, self._context(topic, headers))
        except Exception as error:
            told = self._told(error, topic, data)
            self._has_failed(made, topic, question, told)
            raise told from None
        made.topics.add(topic)
        return result

    async def _find(self, made: Made, topic: str, headers: HeaderList, data: Any, question: Question) -> None:
        """Ask for the schema of a topic, as the client does for a record; the result is thrown away."""
        try:
            serializer = await self._serializer(made)
            await serializer(data, self._context(topic, headers))
        except Exception as error:  # if it is about the record, the record finds it out by itself
            self._has_failed(made, topic, question, self._told(error, topic, data))

    def _has_failed(self, made: Made, topic: str, question: Question, told: SerializationError) -> None:
        """Share the failure of a question, if it is one, with the records sent until now. Later ones ask again."""
        if isinstance(told, RegistryError) and self._is_shared:
            question.failure = told
            if made.questions.get(topic) is question:
                del made.questions[topic]

    async def _serializer(self, made: Made) -> Any:
        """Return the client's serializer of the running event loop.

        Raises:
            ConfigError: the client does not take the options.
        """
        if made.serializer is None:
            client = self._registry.hold(self)
            try:
                made.serializer = await self._client_serializer(client)
            except json.JSONDecodeError:  # of the registry, which was asked for references
                raise
            except (ValueError, TypeError) as error:
                raise ConfigError(f"confluent-kafka does not take the options: {error}") from None
        return made.serializer

    def _context(self, topic: str, headers: HeaderList) -> Any:
        from confluent_kafka.serialization import MessageField, SerializationContext

        return SerializationContext(topic, MessageField.KEY if self._is_key else MessageField.VALUE, cast(Any, headers))

    def _subject_of(self, context: Any, record_name: str | None) -> str | None:
        """Return the subject of a record; the client asks for it."""
        topic: str = context.topic
        if self._subject == "topic":
            subject: str | None = f"{topic}-{self._field}"
        elif self._subject == "record":
            subject = record_name
        elif self._subject == "topic_record":
            subject = None if record_name is None else f"{topic}-{record_name}"
        else:
            asked: Any = self._subject
            subject = asked(topic, record_name)
        if subject is None:
            failure = SerializationError(f"{self._what()} has no name that its subject could be made of")
            advise(failure, "Give the schema a name (in JSON Schema: title), or use subject='topic'.")
            raise failure
        self._subjects[topic] = subject
        return subject

    def _what(self) -> str:
        return f"the {NAMES[self._form]} schema {self._name!r}"

    def _told(self, error: Exception, topic: str, data: Any) -> SerializationError:
        """Return the error of a record, in words that have nothing of its contents."""
        subject = self._subjects.get(topic, "")
        if isinstance(error, SerializationError):
            return error
        if isinstance(error, ConfigError):
            return SerializationError(f"{self._field}_serializer: {error.message}", topic=topic)
        of_registry = self._registry.failure(error, subject, topic)
        if of_registry is not None:
            return of_registry
        if "guid" in str(error).lower() and self._options.get("schema.id.serializer") is not None:
            failure = RegistryError(
                f"the schema registry at {self._registry.url} gives no GUIDs of schemas", topic=topic
            )
            advise(failure, "Use schema_id='prefix': the id in a header needs a newer registry.")
            return failure
        try:
            why = self._misfit(error, data)
        except Exception:  # the search for the field must not hide the failure
            why = ""
        return self._unfit(why or f"the data does not fit: {type(error).__name__}", topic)

    def _unfit(self, why: str, topic: str) -> SerializationError:
        """Return the error of a record that does not fit its schema."""
        subject = self._subjects.get(topic)
        where = f", subject {subject!r}" if subject else ""
        told = SerializationError(f"{self._field}_serializer: {why} ({self._what()}{where})", topic=topic)
        advise(told, "Correct the record, or the schema. Nothing of this record was sent.")
        return told

    def _misfit(self, error: Exception, data: Any) -> str:
        """Return which field does not fit, and how; without contents of the record."""
        if self._form == "protobuf":
            if not isinstance(data, self._schema):
                return f"takes {self._schema.__name__}, not {type(data).__name__}"
            return f"the message is not complete: {type(error).__name__}" if not data.IsInitialized() else ""
        if self._form == "json":
            return misfit_of_json(error.__context__)
        return "" if self._parsed is None else misfit_of_avro(data, self._parsed)


async def failed(error: SerializationError) -> bytes | None:
    """Raise an error where it is awaited: the Delivery has it, as for the first record of a topic, and `send` does not raise.

    Args:
        error: of the record.

    Raises:
        SerializationError: always.
    """
    raise error from None


def misfit_of_avro(data: Any, parsed: Any) -> str:
    """Return the first field that does not fit an Avro schema.

    Args:
        data: of the record.
        parsed: schema, as fastavro has it.
    """
    validation: Any = import_module("fastavro.validation")
    if as_dict(parsed).get("type") == "record":
        if not isinstance(data, Mapping):
            return f"takes a dict, not {type(data).__name__}; to_dict=... can convert it"
    try:
        validation.validate(data, parsed, raise_errors=True)
    except validation.ValidationError as found:
        errors = found.errors
        field = errors[0].field
        datum = errors[0].datum
        types = [avro_type(each.schema) for each in errors if each.field == field]
        missing = " (or is missing)" if datum is None else ""
        taken = " or ".join(dict.fromkeys(types))
        return f"field {field or '(the whole)'} takes {taken}, and is {type(datum).__name__}{missing}"
    return ""


def avro_type(schema: Any) -> str:
    """Return the short name of an Avro type.

    Args:
        schema: as fastavro has it.
    """
    if isinstance(schema, Mapping):
        found = cast("Mapping[str, Any]", schema)
        kind = str(found.get("logicalType") or found.get("type"))
        return f"{kind} {found['name']}" if "name" in found else kind
    if isinstance(schema, list):
        return " or ".join(map(avro_type, cast(Any, schema)))
    return str(schema)


def misfit_of_json(found: Any) -> str:
    """Return where an object does not fit a JSON Schema: by the schema's names, as names of the record are contents.

    Args:
        found: jsonschema's ValidationError, or anything else.
    """
    path = getattr(found, "absolute_schema_path", None)
    if path is None:
        return ""
    steps = list(path)
    field = ""
    for at, step in enumerate(steps[:-1]):
        before = steps[at - 1] if at else None
        if before == "properties":
            field += f".{step}"
        elif step == "items" and before != "properties":
            field += "[]"
        elif step in ("additionalProperties", "patternProperties") and before != "properties":
            field += ".*"
    rule, value, instance = str(found.validator), found.validator_value, found.instance
    field = field.lstrip(".") or "(the whole)"
    if rule == "type":
        return f"field {field} takes {value if isinstance(value, str) else ' or '.join(value)}, and is {json_type(instance)}"
    if rule == "required":
        missing = [str(name) for name in value if name not in instance]
        return f"field {field} lacks {', '.join(missing)}"
    return f"field {field} breaks the schema's rule {rule!r}"


def json_type(data: object) -> str:
    """Return the name that JSON Schema has for the type of a value.

    Args:
        data: the value.
    """
    name = type(data).__name__
    if data is None:
        return "null"
    names: tuple[tuple[Any, str], ...] = (
        (bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"), (dict, "object"),
    )  # fmt: skip
    return next((of_json for kind, of_json in names if isinstance(data, kind)), name)


def name_of(schema: Any, parsed: Any) -> str:
    """Return a schema's name; empty if it has none.

    Args:
        schema: as the program gave it.
        parsed: what was made of it.
    """
    if isinstance(schema, type):
        return str(getattr(schema, "DESCRIPTOR").full_name)  # noqa: B009
    if isinstance(parsed, Mapping):
        found = cast("Mapping[str, Any]", parsed)
        return str(found.get("name") or found.get("title") or found.get("type") or "")
    return "" if isinstance(parsed, list) or parsed is None else str(parsed)


def checked_schema(schema: Any, form: str) -> Any:
    """Return the schema as its library has it; None if only the registry has all of it.

    Args:
        schema: text, a Schema of confluent-kafka, or a generated class of Protobuf.
        form: "avro", "json" or "protobuf".

    Raises:
        ConfigError: it is no such schema.
    """
    if form == "protobuf":
        return None
    text = schema if isinstance(schema, str) else schema.schema_str
    try:
        made = json.loads(text)
    except ValueError as error:
        if form == "avro" and isinstance(text, str) and text.strip().isidentifier():
            made = text.strip()  # "string"
        else:
            raise ConfigError(f"the schema is no JSON: {error}") from None
    if not isinstance(schema, str) and schema.references:
        return None
    if form == "json":
        jsonschema: Any = import_module("jsonschema")
        try:
            jsonschema.validators.validator_for(made).check_schema(made)
        except jsonschema.SchemaError as error:
            raise ConfigError(f"this is no JSON Schema: {error.message}") from None
        return made
    fastavro: Any = import_module("fastavro")
    try:
        return fastavro.parse_schema(made)
    except Exception as error:
        of_dict = as_dict(made)
        is_json = "$schema" in of_dict or "properties" in of_dict or of_dict.get("type") == "object"
        hint = "; it looks like JSON Schema, which needs format='json'" if is_json else ""
        raise ConfigError(f"this is no Avro schema: {type(error).__name__}: {error}{hint}") from None


def value_serializer(
    registry: SchemaRegistry | str,
    schema: Any,
    *,
    format: FormatName | None = None,
    to_dict: Callable[[Any], Any] | None = None,
    register: bool = True,
    use_latest: bool = False,
    subject: SubjectName = "topic",
    schema_id: PlaceName = "prefix",
    options: Mapping[str, Any] | None = None,
) -> RegistrySerializer:
    """Make a serializer for `Producer(value_serializer=...)`.

    Args:
        registry: the schema registry, or its URL.
        schema: text of an Avro schema or a JSON Schema, a `Schema` of confluent-kafka (with references), or a generated
            class of Protobuf.
        format: "json" for the text of a JSON Schema; None: Avro, or what the `Schema` or the class is.
        to_dict: converts what `send` is given into what the schema describes, such as `dataclasses.asdict`.
        register: True registers the schema under its subject if the registry does not have it there; False makes that an error.
        use_latest: True writes with the newest version that the subject has, and registers nothing.
        subject: "topic" (TOPIC-value), "record" (the schema's name), "topic_record", or a function of topic and that name.
        schema_id: "prefix" puts the id before the data, "header" into a header, which consumers must know.
        options: further options of confluent-kafka's serializer, by its names, such as `normalize.schemas`.

    Returns:
        The serializer. Other producers may use it too.

    Raises:
        ConfigError: the schema is none, or an argument is wrong.
    """
    return made_serializer(registry, schema, False, format, to_dict, register, use_latest, subject, schema_id, options)


def key_serializer(
    registry: SchemaRegistry | str,
    schema: Any,
    *,
    format: FormatName | None = None,
    to_dict: Callable[[Any], Any] | None = None,
    register: bool = True,
    use_latest: bool = False,
    subject: SubjectName = "topic",
    schema_id: PlaceName = "prefix",
    options: Mapping[str, Any] | None = None,
) -> RegistrySerializer:
    """Make a serializer for `Producer(key_serializer=...)`. A key of Protobuf is not the same in each language: prefer text.

    Args:
        registry, schema, format, to_dict, register, use_latest, schema_id, options: as of `value_serializer`.
        subject: as there; "topic" is TOPIC-key.

    Returns:
        The serializer. Other producers may use it too.

    Raises:
        ConfigError: the schema is none, or an argument is wrong.
    """
    return made_serializer(registry, schema, True, format, to_dict, register, use_latest, subject, schema_id, options)


def made_serializer(
    registry: SchemaRegistry | str,
    schema: Any,
    is_key: bool,
    form: FormatName | None,
    to_dict: Callable[[Any], Any] | None,
    register: bool,
    use_latest: bool,
    subject: SubjectName,
    schema_id: PlaceName,
    options: Mapping[str, Any] | None,
) -> RegistrySerializer:
    """Make a serializer of the arguments that keys and values have in common.

    Args:
        registry, schema, to_dict, register, use_latest, subject, schema_id, options: as of `value_serializer`.
        is_key: True for keys.
        form: "avro", "json" or None.

    Raises:
        ConfigError: an argument is wrong.
    """
    confluent: Any = import_module("confluent_kafka.schema_registry")
    if not isinstance(cast(object, registry), str | SchemaRegistry):
        raise ConfigError(f"registry is a SchemaRegistry or its URL, not {type(registry).__name__}")
    found: str
    if isinstance(schema, type) and hasattr(schema, "DESCRIPTOR") and hasattr(schema, "SerializeToString"):
        found = "protobuf"
        if form is not None:
            raise ConfigError(f"{schema.__name__} is a class of Protobuf: leave format out")
    elif isinstance(schema, confluent.Schema):
        found = str(cast(Any, schema).schema_type or "AVRO").lower()
        if found == "protobuf":
            raise ConfigError("for Protobuf the schema is the generated class, such as order_pb2.Order")
    elif isinstance(schema, str):
        found = form or "avro"
    else:
        hint = ": json.dumps(schema) is its text" if isinstance(schema, dict | list) else ""
        kind = type(cast(object, schema)).__name__
        raise ConfigError(f"schema is a text, a Schema of confluent-kafka or a class of Protobuf, not {kind}{hint}")
    if found not in NAMES or (form is not None and form != found):
        raise ConfigError(f"format is 'avro' or 'json', as the schema is, not {form or found!r}")
    if schema_id not in ("prefix", "header"):
        raise ConfigError(f"schema_id is 'prefix' or 'header', not {schema_id!r}")
    if not callable(subject) and subject not in ("topic", "record", "topic_record"):
        raise ConfigError(f"subject is 'topic', 'record', 'topic_record' or a function, not {subject!r}")
    if callable(subject) and not takes(subject, 2):
        raise ConfigError("subject is given a function of the topic and the schema's name, which must take these two")
    if to_dict is not None and (not callable(cast(object, to_dict)) or not takes(to_dict, 1)):
        raise ConfigError("to_dict is a function of one argument: of what `send` is given")
    if to_dict is not None and found == "protobuf":
        raise ConfigError("to_dict is for Avro and JSON Schema: send a message of the class")
    own: dict[str, Any] = {"auto.register.schemas": register and not use_latest, "use.latest.version": use_latest}
    if schema_id == "header":
        own["schema.id.serializer"] = confluent.header_schema_id_serializer
    made = SchemaRegistry(registry) if isinstance(registry, str) else registry
    return RegistrySerializer(
        made, schema, cast(Any, found), is_key, to_dict, subject, {**own, **checked_options(options)}
    )
