"""The words of the embedded grammar, and the inflection of German articles and adjectives."""

from typing import NamedTuple

NOMINATIVE, ACCUSATIVE, DATIVE = range(3)


class Noun(NamedTuple):
    """A noun with all the forms that the grammar needs."""

    gender: str  # m, f, n
    kind: str  # person, place, or what one does to a thing: read, eat, open, other
    singular: str
    plural: str
    dative_plural: str
    english: str
    english_plural: str


class Verb(NamedTuple):
    """A verb, its forms, and the kinds of objects it takes."""

    particle: str  # separable prefix, or ""
    singular: str  # er liest; without the particle
    plural: str  # sie lesen; without the particle
    participle: str  # gelesen
    perfect: str  # hat or ist
    english: str  # read
    english_third: str  # reads
    english_past: str  # read
    accusative: tuple[str, ...]  # kinds of nouns, () without such an object
    dative: bool  # a person in the dative
    complement: bool  # a clause with dass follows

    @property
    def infinitive(self) -> str:
        return self.particle + self.plural


class Pronoun(NamedTuple):
    """A personal pronoun, as a subject."""

    german: str
    english: str
    plural: bool


class Adverb(NamedTuple):
    """An adverbial of fixed words."""

    role: str  # time, often, manner
    german: str
    english: str
    forms: str  # which of p(resent), s (simple past, German perfect), m(odal) it goes with


class Preposition(NamedTuple):
    """A preposition and the case it governs."""

    role: str  # place, manner
    german: str
    english: str
    case: int


_NOUNS = """
m person Mann Männer Männern man men
m person Arzt Ärzte Ärzten doctor doctors
m person König Könige Königen king kings
m person Lehrer Lehrer Lehrern teacher teachers
m person Freund Freunde Freunden friend friends
f person Frau Frauen Frauen woman women
f person Tochter Töchter Töchtern daughter daughters
f person Schwester Schwestern Schwestern sister sisters
n person Kind Kinder Kindern child children
n person Mädchen Mädchen Mädchen girl girls
m read Brief Briefe Briefen letter letters
n read Buch Bücher Büchern book books
f read Zeitung Zeitungen Zeitungen newspaper newspapers
m eat Apfel Äpfel Äpfeln apple apples
m eat Kuchen Kuchen Kuchen cake cakes
n eat Brot Brote Broten loaf loaves
f open Tür Türen Türen door doors
n open Fenster Fenster Fenstern window windows
m open Koffer Koffer Koffern suitcase suitcases
n other Bild Bilder Bildern picture pictures
f other Blume Blumen Blumen flower flowers
m place Garten Gärten Gärten garden gardens
m place Wald Wälder Wäldern forest forests
f place Küche Küchen Küchen kitchen kitchens
f place Schule Schulen Schulen school schools
n place Haus Häuser Häusern house houses
"""
_THINGS = "read,eat,open,other"
_VERBS = f"""
- schläft schlafen geschlafen hat sleep sleeps slept - - -
- arbeitet arbeiten gearbeitet hat work works worked - - -
- lacht lachen gelacht hat laugh laughs laughed - - -
- tanzt tanzen getanzt hat dance dances danced - - -
- läuft laufen gelaufen ist run runs ran - - -
auf wacht wachen aufgewacht ist wake_up wakes_up woke_up - - -
an kommt kommen angekommen ist arrive arrives arrived - - -
- liest lesen gelesen hat read reads read read - -
- isst essen gegessen hat eat eats ate eat - -
- kauft kaufen gekauft hat buy buys bought {_THINGS} - -
- sucht suchen gesucht hat look_for looks_for looked_for {_THINGS},person - -
- sieht sehen gesehen hat see sees saw {_THINGS},person - -
auf macht machen aufgemacht hat open opens opened open - -
zu macht machen zugemacht hat close closes closed open - -
mit bringt bringen mitgebracht hat bring brings brought {_THINGS} - -
an ruft rufen angerufen hat call calls called person - -
ein lädt laden eingeladen hat invite invites invited person - -
- hilft helfen geholfen hat help helps helped - dative -
- dankt danken gedankt hat thank thanks thanked - dative -
- gibt geben gegeben hat give gives gave {_THINGS} dative -
- zeigt zeigen gezeigt hat show shows showed {_THINGS} dative -
- sagt sagen gesagt hat say says said - - dass
- glaubt glauben geglaubt hat believe believes believed - - dass
- weiß wissen gewusst hat know knows knew - - dass
"""


def _words(text: str) -> list[list[str]]:
    return [[w.replace("_", " ") for w in line.split()] for line in text.strip().split("\n")]


def _verb(row: list[str]) -> Verb:
    particle, *forms, accusative, dative, complement = [cell.strip("-") for cell in row]
    kinds = tuple(accusative.split(",")) if accusative else ()
    return Verb._make([particle, *forms, kinds, bool(dative), bool(complement)])


NOUNS = [Noun(*row) for row in _words(_NOUNS)]
VERBS = [_verb(row) for row in _words(_VERBS)]
ADJECTIVES = {"alt": "old", "klein": "small", "groß": "big", "gut": "good", "schön": "beautiful"}
ADJECTIVES |= {"neu": "new", "jung": "young"}  # the last is said of persons, neu of all else
AUXILIARIES = {  # singular and plural, English singular and plural
    "hat": ("hat", "haben", "", ""),  # the perfect is the English simple past
    "ist": ("ist", "sind", "", ""),
    "kann": ("kann", "können", "can", "can"),
    "muss": ("muss", "müssen", "must", "must"),
    "will": ("will", "wollen", "wants to", "want to"),
    "wird": ("wird", "werden", "will", "will"),
}
PERFECT, MODALS = ["hat", "ist"], ["kann", "muss", "will", "wird"]
ADVERBS = [
    Adverb("time", "heute", "today", "psm"),
    Adverb("time", "jetzt", "now", "p"),
    Adverb("time", "gestern", "yesterday", "s"),
    Adverb("time", "morgen", "tomorrow", "m"),
    Adverb("time", "am Abend", "in the evening", "psm"),
    Adverb("often", "oft", "often", "psm"),
    Adverb("often", "nie", "never", "psm"),
    Adverb("often", "immer", "always", "psm"),
    Adverb("manner", "langsam", "slowly", "psm"),
    Adverb("manner", "leise", "quietly", "psm"),
    Adverb("manner", "gern", "gladly", "psm"),
    Adverb("manner", "allein", "alone", "psm"),
]
PREPOSITIONS = [
    Preposition("place", "in", "in", DATIVE),
    Preposition("place", "vor", "in front of", DATIVE),
    Preposition("place", "hinter", "behind", DATIVE),
    Preposition("manner", "mit", "with", DATIVE),
    Preposition("manner", "ohne", "without", ACCUSATIVE),
]
COORDINATORS = {"und": "and", "aber": "but", "denn": "for"}  # a verb-second clause follows
SUBORDINATORS = {"weil": "because", "obwohl": "although", "wenn": "when", "während": "while"}
COMPLEMENT = "dass"  # and the English that
PRONOUNS = [Pronoun("er", "he", False), Pronoun("wir", "we", True)]
PRONOUNS += [Pronoun("sie", "she", False), Pronoun("sie", "they", True)]  # by the verb
ROLES = ("time", "often", "manner", "place")  # of adverbials, in German order

# A determiner is named by its masculine nominative; "" is the bare plural
SINGULAR = {"der": "the", "ein": "a", "dieser": "this"}
PLURAL = {"der": "the", "dieser": "these", "viele": "many", "zwei": "two", "": ""}
DEFINITE = {"der", "dieser"}

_ENDINGS = {"m": ("er", "en", "em"), "f": ("e", "e", "er"), "n": ("es", "es", "em")}
_ENDINGS["p"] = ("e", "e", "en")  # strong endings by gender (p: plural) and case
_ARTICLES = {"er": "der", "en": "den", "em": "dem", "es": "das", "e": "die"}
_BARE = {("m", NOMINATIVE), ("n", NOMINATIVE), ("n", ACCUSATIVE)}  # where ein has no ending


def article(determiner: str, gender: str, case: int) -> str:
    """Inflect a determiner; gender is m, f, n, or p for the plural."""
    ending = _ENDINGS[gender][case]
    if determiner == "der":
        return _ARTICLES[ending]
    if determiner == "dieser":
        return "dies" + ending
    if determiner == "ein":
        return "ein" if (gender, case) in _BARE else "ein" + ending
    return "viel" + ending if determiner == "viele" else determiner


def adjective(stem: str, determiner: str, gender: str, case: int) -> str:
    """Inflect an adjective: weak after der and dieser, strong where no ending precedes it."""
    if case == DATIVE:
        return stem + "en"
    strong = _ENDINGS[gender][case]
    if determiner in DEFINITE:
        return stem + ("en" if gender == "p" or strong == "en" else "e")
    return stem + strong
